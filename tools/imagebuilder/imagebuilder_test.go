package imagebuilder_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/x509"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/stoker-k8s/stoker/internal/testing/port"
	"github.com/stoker-k8s/stoker/local/debian"
	"github.com/stoker-k8s/stoker/tools/imagebuilder"
)

// root of the repository.
const root = "../.."

// small is the image that tests build for all platforms: compiling all would take minutes.
const small = "stoker-status"

// commit is a time that files and images have.
var commit = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// build makes images from the tree at source.
func build(t *testing.T, source, platforms string, names ...string) []imagebuilder.Built {
	t.Helper()
	selected, err := imagebuilder.Select(names)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := imagebuilder.ParsePlatforms(platforms)
	if err != nil {
		t.Fatal(err)
	}
	b := imagebuilder.Build{
		Source: source, Version: "v1.2.3", Revision: "0123456789abcdef", Created: commit, Platforms: parsed,
		Say: func(line string, passing bool) {
			if !passing {
				t.Log(line)
			}
		},
	}
	built, err := b.Build(t.Context(), selected, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// images of an index, by architecture.
func images(t *testing.T, index v1.ImageIndex) map[string]v1.Image {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]v1.Image{}
	for _, m := range manifest.Manifests {
		img, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		all[m.Platform.Architecture] = img
	}
	return all
}

type entry struct {
	tar.Header

	content []byte
}

// files of an image by name.
func files(t *testing.T, img v1.Image) map[string]entry {
	t.Helper()
	r := mutate.Extract(img)
	defer r.Close()
	all := map[string]entry{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		all["/"+strings.TrimSuffix(h.Name, "/")] = entry{*h, content}
	}
}

// copyTree copies what git has of the repository, as somebody else's clone.
func copyTree(t *testing.T) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "elsewhere")
	list := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for file := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, file))
		if errors.Is(err, os.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue // removed, and not committed yet; or a link, of which programs have none
		}
		data, err := os.ReadFile(filepath.Join(root, file))
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(to, file)), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, file), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

func digest(t *testing.T, of interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	d, err := of.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func TestImages(t *testing.T) {
	t.Parallel()
	built := build(t, root, imagebuilder.Platforms, small)[0]
	t.Run("are the same from another clone", func(t *testing.T) {
		t.Parallel()
		again := build(t, copyTree(t), imagebuilder.Platforms, small)[0]
		if a, b := digest(t, built.Index), digest(t, again.Index); a != b {
			t.Errorf("digests %s and %s", a, b)
		}
		for n := range built.SBOMs {
			if a, b := digest(t, built.SBOMs[n]), digest(t, again.SBOMs[n]); a != b {
				t.Errorf("digests of SBOMs %s and %s", a, b)
			}
		}
	})
	t.Run("are for each platform a static program that runs as nobody", func(t *testing.T) {
		t.Parallel()
		machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
		all := images(t, built.Index)
		if len(all) != len(machines) {
			t.Errorf("%d platforms", len(all))
		}
		for architecture, machine := range machines {
			checkImage(t, all[architecture], architecture, machine)
		}
	})
	t.Run("say what is in them", func(t *testing.T) {
		t.Parallel()
		checkSBOM(t, built)
	})
	t.Run("can be pulled from a registry by tag and by digest", func(t *testing.T) {
		t.Parallel()
		checkPush(t, built)
	})
	t.Run("can be written to a directory that is empty", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "oci")
		layout, err := imagebuilder.NewLayout(dir)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := layout.Add(built, "v1.2.3")
		if want := small + ":v1.2.3@" + digest(t, built.Index); err != nil || ref != want {
			t.Errorf("%s, %v; want %s", ref, err, want)
		}
		if _, err := imagebuilder.NewLayout(dir); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("a directory with something in it: %v", err)
		}
	})
}

func checkImage(t *testing.T, img v1.Image, architecture string, machine elf.Machine) {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if config.Architecture != architecture || config.OS != "linux" || !config.Created.Equal(commit) {
		t.Errorf("for %s/%s, created %s", config.OS, config.Architecture, config.Created)
	}
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/usr/bin/" + small}) {
		t.Errorf("user %q runs %q", c.User, c.Entrypoint)
	}
	if l := c.Labels; l["org.opencontainers.image.version"] != "v1.2.3" || l["org.opencontainers.image.revision"] != "0123456789abcdef" {
		t.Errorf("labels %v", l)
	}
	all := files(t, img)
	program, err := elf.NewFile(bytes.NewReader(all[c.Entrypoint[0]].content))
	if err != nil {
		t.Fatal(err)
	}
	if program.Machine != machine {
		t.Errorf("the program is for %v", program.Machine)
	}
	if slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Error("the program isn't static: it wants an interpreter")
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(all["/etc/ssl/certs/ca-certificates.crt"].content) {
		t.Error("no certificate authorities")
	}
	programs := 0
	for path, e := range all {
		if e.Typeflag == tar.TypeReg && e.Mode&0o111 != 0 {
			programs++
		}
		if e.Uid != 0 || e.Gid != 0 || (e.Mode&0o022 != 0 && path != "/tmp") || !e.ModTime.Equal(commit) {
			t.Errorf("%s: owner %d:%d, mode %o, changed %s", path, e.Uid, e.Gid, e.Mode, e.ModTime)
		}
	}
	if programs != 1 {
		t.Errorf("%d programs: %v", programs, all)
	}
}

// checkSBOM compares the SBOMs with go.mod.
func checkSBOM(t *testing.T, built imagebuilder.Built) {
	t.Helper()
	if len(built.SBOMs) != 2 {
		t.Fatalf("%d SBOMs", len(built.SBOMs))
	}
	index, err := built.Index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for n, artifact := range built.SBOMs {
		manifest, err := artifact.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		if manifest.Subject == nil || manifest.Subject.Digest != index.Manifests[n].Digest || manifest.Config.MediaType != imagebuilder.SBOMType {
			t.Errorf("subject %v of %v, type %s", manifest.Subject, index.Manifests[n].Digest, manifest.Config.MediaType)
		}
		text, err := imagebuilder.SBOMText(artifact)
		if err != nil {
			t.Fatal(err)
		}
		var bom cyclonedx.BOM
		if err := json.Unmarshal(text, &bom); err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, c := range *bom.Components {
			found[c.Name] = c.Version
		}
		for module, version := range map[string]string{
			"github.com/nats-io/nats.go":               required(t, "github.com/nats-io/nats.go"),
			"golang.org/x/crypto/x509roots/fallback":   required(t, "golang.org/x/crypto/x509roots/fallback"),
			"github.com/stoker-k8s/stoker":             "v1.2.3",
			"github.com/stoker-k8s/stoker/pkg":         "v1.2.3",
			"github.com/stoker-k8s/stoker/deployments": "",
		} {
			if found[module] != version {
				t.Errorf("%s is there as %q, want %q", module, found[module], version)
			}
		}
		if found["std"] == "" {
			t.Errorf("Go itself isn't in %v", found)
		}
	}
}

// required is the version of a module that go.mod requires.
func required(t *testing.T, module string) string {
	t.Helper()
	file := filepath.Join(root, "go.mod")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("%s doesn't require %s", file, module)
	}
	return string(m[1])
}

// checkPush pushes an image to a registry, and pulls it.
func checkPush(t *testing.T, built imagebuilder.Built) {
	t.Helper()
	repository := registry(t) + "/team/stoker"
	ref, err := built.Push(t.Context(), repository, "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	if want := repository + "/" + small + ":v1.2.3@" + digest(t, built.Index); ref != want {
		t.Errorf("reference %s, want %s", ref, want)
	}
	for _, text := range []string{ref, repository + "/" + small + ":v1.2.3"} {
		parsed, err := name.ParseReference(text)
		if err != nil {
			t.Fatal(err)
		}
		pulled, err := remote.Index(parsed, remote.WithContext(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		if a, b := digest(t, pulled), digest(t, built.Index); a != b {
			t.Errorf("pulled %s, pushed %s", a, b)
		}
	}
	index, err := built.Index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range index.Manifests {
		image, err := name.NewDigest(repository + "/" + small + "@" + m.Digest.String())
		if err != nil {
			t.Fatal(err)
		}
		referrers, err := remote.Referrers(image, remote.WithContext(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		list, err := referrers.IndexManifest()
		if err != nil || len(list.Manifests) != 1 || list.Manifests[0].ArtifactType != imagebuilder.SBOMType {
			t.Errorf("what refers to %s: %+v, %v", m.Platform, list, err)
		}
	}
	if _, err := built.Push(t.Context(), "Not/A/Registry", "v1"); err == nil || !strings.Contains(err.Error(), "Not/A/Registry") {
		t.Errorf("a registry that is none: %v", err)
	}
}

// registry runs one on a free port, and returns its host and port.
func registry(t *testing.T) string {
	t.Helper()
	program, err := debian.Find(t.Context(), "docker-registry", "usr/bin/docker-registry", func(line string, _ bool) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yml")
	for try := range 10 {
		address := port.Address(t, "127.0.0.1")
		text := fmt.Sprintf("version: 0.1\nstorage: {filesystem: {rootdirectory: %q}}\nhttp: {addr: %q}\n", dir, address)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cmd := exec.CommandContext(ctx, program.Path, "serve", config)
		cmd.Env = append(os.Environ(), program.Env...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		t.Cleanup(func() { cancel(); <-ended })
		if answers(address, ended) {
			return address
		}
		t.Logf("try %d: %s", try, out.String())
	}
	t.Fatal("the registry did not start")
	return ""
}

// answers waits until a registry answers, or its process has ended.
func answers(address string, ended <-chan struct{}) bool {
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		select {
		case <-ended:
			tick.Stop()
			return false
		case <-tick.C:
			if resp, err := http.Get("http://" + address + "/v2/"); err == nil {
				_ = resp.Body.Close()
				tick.Stop()
				return true
			}
		}
	}
}

// TestImageRunsReadOnly runs an image in a container that can write nothing. `make test-containers` runs this test with an engine.
func TestImageRunsReadOnly(t *testing.T) {
	t.Parallel()
	if err := exec.Command("docker", "info").Run(); err != nil {
		t.Skip("no container engine answers; make test-containers runs this test with one")
	}
	built := build(t, root, "linux/"+runtime.GOARCH, small)[0]
	tag := fmt.Sprintf("test-%d", time.Now().UnixNano())
	ref, err := built.Load(t.Context(), "localhost/stoker", tag)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = exec.Command("docker", "rmi", ref).Run() })
	out, err := exec.Command("docker", "run", "--rm", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", ref, "--version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), small+" v1.2.3 (revision 0123456789abcdef") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestComponents(t *testing.T) {
	if testing.Short() {
		t.Skip("long: takes two minutes; TestImages shows the same for an image of Stoker")
	}
	t.Parallel()
	built := build(t, root, imagebuilder.Platforms, "nats", "kube-apiserver", "kube-scheduler")
	layers := map[string]bool{}
	for _, b := range built {
		if strings.HasPrefix(b.Image.Name, "kube-") && b.Image.Version == "v1.36.3" {
			for _, img := range images(t, b.Index) {
				all, err := img.Layers()
				if err != nil {
					t.Fatal(err)
				}
				layers[digest(t, all[1])] = true
			}
		}
	}
	if len(layers) != 1 {
		t.Errorf("the programs of a Kubernetes are in %d layers", len(layers))
	}
	if b := built[len(built)-1]; b.Image.Name != "nats" || b.Image.Path != "/nats-server" || !strings.HasPrefix(b.Image.Version, "2.") {
		t.Errorf("%+v", b.Image)
	}
}

func TestInput(t *testing.T) {
	t.Parallel()
	for platforms, want := range map[string]string{"linux/amd64,linux/arm64": "", "windows/amd64": "windows/amd64", "linux": `"linux"`, "": `""`} {
		_, err := imagebuilder.ParsePlatforms(platforms)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("platforms %q: %v", platforms, err)
		}
	}
	if _, err := imagebuilder.Select([]string{"stoker-cert"}); err == nil || !strings.Contains(err.Error(), `"stoker-cert"`) || !strings.Contains(err.Error(), "stoker-certs") {
		t.Errorf("an image that isn't: %v", err)
	}
	if all, err := imagebuilder.Select(nil); err != nil || len(all) != 11 {
		t.Errorf("%v, %v", all, err)
	}
}

func TestCreated(t *testing.T) {
	for value, want := range map[string]int64{"1700000000": 1_700_000_000, "yesterday": -1} {
		t.Setenv("SOURCE_DATE_EPOCH", value)
		at, err := imagebuilder.Created(t.Context(), root)
		if (err != nil) != (want < 0) || err == nil && at.Unix() != want {
			t.Errorf("SOURCE_DATE_EPOCH=%s: %s, %v", value, at, err)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "")
	if at, err := imagebuilder.Created(t.Context(), t.TempDir()); err != nil || at.Unix() != 0 {
		t.Errorf("no commit: %s, %v", at, err)
	}
}

// The Dockerfile makes the same images for those who build with an engine.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "deployments", "docker", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range imagebuilder.Images() {
		_, target, found := strings.Cut(string(text), " AS "+i.Name+"\n")
		target, _, _ = strings.Cut(target, "\nFROM ")
		if !found || !strings.Contains(target, fmt.Sprintf("ENTRYPOINT [%q]", i.Path)) || !strings.Contains(target, "/"+i.Name+"/ /\n") {
			t.Errorf("target %s: %q", i.Name, target)
		}
	}
	for _, want := range []string{
		"USER 65532:65532", "ENV PATH=/usr/local/bin:/usr/bin:/bin SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt ZONEINFO=/usr/share/zoneinfo.zip",
		`org.opencontainers.image.version="${VERSION}" org.opencontainers.image.revision="${REVISION}"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q", want)
		}
	}
}
