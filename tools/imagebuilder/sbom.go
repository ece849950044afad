package imagebuilder

import (
	"bytes"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"golang.org/x/mod/modfile"
)

// repository is the path of Stoker's own modules: the root module, and the modules below it.
const repository = "github.com/stoker-k8s/stoker"

// rootsModule is where the certificate authorities in images are from.
const rootsModule = "golang.org/x/crypto/x509roots/fallback"

// rootsVersion is the version of rootsModule that the source tree requires.
func (b Build) rootsVersion() (string, error) {
	path := filepath.Join(b.Source, "go.mod")
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	file, err := modfile.ParseLax(path, text, nil)
	if err != nil {
		return "", err
	}
	for _, r := range file.Require {
		if r.Mod.Path == rootsModule {
			return r.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("%s requires no %s", path, rootsModule)
}

// sbom lists what is in an image, in CycloneDX (https://cyclonedx.org/specification/overview): the Go modules that its program says it
// was built from, Go itself, and the module that the certificate authorities are from.
func (b Build) sbom(i Image, layers [][]file) ([]byte, error) {
	version := i.Version
	if i.Component == "" {
		version = b.Version
	}
	sbom := cyclonedx.NewBOM()
	image := component(i.Name, version)
	image.Type, image.Description, image.PackageURL = cyclonedx.ComponentTypeContainer, i.Description, ""
	image.BOMRef = i.Name
	sbom.Metadata = &cyclonedx.Metadata{Timestamp: b.Created.Format(time.RFC3339), Component: &image}
	var all []cyclonedx.Component
	known := map[string]bool{}
	add := func(c cyclonedx.Component) {
		if !known[c.BOMRef] {
			known[c.BOMRef] = true
			all = append(all, c)
		}
	}
	for _, files := range layers {
		for _, f := range files {
			if f.from == "" || f.mode&0o111 == 0 {
				continue
			}
			info, err := buildinfo.ReadFile(f.from)
			if err != nil {
				return nil, fmt.Errorf("what %s was built from: %w", f.from, err)
			}
			b.compiled(info, version, add)
		}
	}
	roots, err := b.rootsVersion()
	if err != nil {
		return nil, err
	}
	add(component(rootsModule, roots))
	sbom.Components = &all
	var refs []string
	for _, c := range all {
		refs = append(refs, c.BOMRef)
	}
	sbom.Dependencies = &[]cyclonedx.Dependency{{Ref: i.Name, Dependencies: &refs}}
	var text bytes.Buffer
	err = cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(sbom)
	return text.Bytes(), err
}

// modules of a program, its own among them, as they were used: a replacement counts for what it replaces.
func modules(info *debug.BuildInfo) []debug.Module {
	var all []debug.Module
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		used := *m
		if m.Replace != nil && m.Replace.Version != "" {
			used = *m.Replace
		}
		used.Replace = nil
		all = append(all, used)
	}
	slices.SortFunc(all, func(a, b debug.Module) int { return strings.Compare(a.Path, b.Path) })
	return all
}

// component is a Go module. Its package URL is that of https://github.com/package-url/purl-spec.
func component(path, version string) cyclonedx.Component {
	url := "pkg:golang/" + path + "@" + version
	return cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, BOMRef: url, Name: path, Version: version, PackageURL: url}
}

// compiled tells what a program was built from.
func (b Build) compiled(info *buildinfo.BuildInfo, version string, add func(cyclonedx.Component)) {
	add(component("std", strings.TrimPrefix(info.GoVersion, "go")))
	for _, m := range modules(info) {
		if m.Path == repository || strings.HasPrefix(m.Path, repository+"/") {
			m.Version = version // built together
		}
		c := component(m.Path, m.Version)
		if sum, ok := strings.CutPrefix(m.Sum, "h1:"); ok {
			if raw, err := base64.StdEncoding.DecodeString(sum); err == nil {
				c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(raw)}}
			}
		}
		add(c)
	}
}
