package compose

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/stoker-k8s/stoker/local"
	"github.com/stoker-k8s/stoker/local/images"
)

// volumes is what there is below the directory of volumes, by path.
func volumes(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm() != 0o400 {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		all[name], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestKeys(t *testing.T) {
	owners := map[string]int{}
	k := Keys{Dir: t.TempDir(), Volumes: t.TempDir(), NodeAddress: "192.0.2.7", APIPort: "16443", Portal: "shop", Own: func(path string, uid int) error {
		owners[filepath.Base(path)] = uid
		return nil
	}}
	if err := k.Make(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // so that the directories can be removed
		for _, dir := range []string{"postgres", "mariadb", "admin"} {
			_ = os.Chmod(filepath.Join(k.Volumes, dir), 0o700)
		}
	})
	made := volumes(t, k.Volumes)
	if owners["postgres"] != uidDatabase || owners["certs"] != uidStoker {
		t.Errorf("owners %v", owners)
	}
	t.Run("a second time nothing changes", func(t *testing.T) {
		if err := k.Make(); err != nil {
			t.Fatal(err)
		}
		if again := volumes(t, k.Volumes); !maps.EqualFunc(made, again, bytes.Equal) {
			t.Errorf("%d files became %d, or others", len(made), len(again))
		}
	})
	t.Run("there are all files that docker-compose.yaml has containers read", func(t *testing.T) {
		text, err := os.ReadFile("../../docker-compose.yaml")
		if err != nil {
			t.Fatal(err)
		}
		at := map[string][]string{ // volumes by where they are mounted
			"etcd": {"etcd", "etcd-management"}, "kubernetes": {"kubernetes"}, "nats": {"nats"}, "postgres": {"postgres"}, "mariadb": {"mariadb"},
			"stoker": append([]string{"operator"}, local.Services...),
		}
		read := 0
		for _, file := range regexp.MustCompile(`/etc/(\w+)/([\w-]+[\w.-]*\w)`).FindAllStringSubmatch(string(text)+natsConf, -1) {
			if volumes, ok := at[file[1]]; ok {
				read++
				if !slices.ContainsFunc(volumes, func(v string) bool { return len(made[v+"/"+file[2]]) > 0 }) {
					t.Errorf("nothing makes %s", file[0])
				}
			}
		}
		if read < 40 {
			t.Errorf("%d files are read", read)
		}
	})
	t.Run("who has a private key of an authority", func(t *testing.T) {
		var with []string
		for name, content := range made {
			if strings.HasSuffix(name, "ca.key") && len(content) > 0 {
				with = append(with, name)
			}
		}
		if !slices.Equal(with, []string{"admin/etcd-ca.key"}) { // the DataStore refers to it
			t.Errorf("%v", with)
		}
	})
	t.Run("a service is its service account, and has its own NATS user's seed", func(t *testing.T) {
		seeds := map[string]bool{}
		for _, service := range local.Services {
			config, err := clientcmd.RESTConfigFromKubeConfig(made[service+"/kubeconfig"])
			if err != nil {
				t.Fatal(err)
			}
			if got := certificate(t, config.CertData).Subject.CommonName; got != "system:serviceaccount:stoker-system:stoker-"+service {
				t.Errorf("%s is %s", service, got)
			}
			seeds[string(made[service+"/seed.nk"])] = true
		}
		if len(seeds) != len(local.Services) {
			t.Errorf("%d seeds", len(seeds))
		}
	})
	t.Run("addresses are what was asked for", func(t *testing.T) {
		config, err := clientcmd.RESTConfigFromKubeConfig(made["operator/host.kubeconfig"])
		if err != nil || config.Host != "https://127.0.0.1:16443" {
			t.Errorf("%v, %v", config, err)
		}
		if err := certificate(t, made["node/kubelet.crt"]).VerifyHostname("192.0.2.7"); err != nil {
			t.Error(err)
		}
		if err := certificate(t, made["kubernetes/apiserver.crt"]).VerifyHostname("127.0.0.1"); err != nil {
			t.Error(err)
		}
	})
	t.Run("NATS servers are a cluster when there are several", func(t *testing.T) {
		if len(made["nats/cluster.conf"]) > 0 {
			t.Errorf("one server: %s", made["nats/cluster.conf"])
		}
		k.NATSServers = []string{"nats", "nats-2"}
		if err := k.Make(); err != nil {
			t.Fatal(err)
		}
		again := volumes(t, k.Volumes)
		if !strings.Contains(string(again["nats/cluster.conf"]), `"nats-route://nats-2:6222"`) {
			t.Errorf("two servers: %s", again["nats/cluster.conf"])
		}
		delete(made, "nats/cluster.conf")
		delete(again, "nats/cluster.conf")
		if !maps.EqualFunc(made, again, bytes.Equal) {
			t.Error("something else changed")
		}
	})
}

func certificate(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("no certificate: %s", text)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if time.Until(c.NotAfter) < 300*24*time.Hour {
		t.Errorf("%s ends at %s", c.Subject.CommonName, c.NotAfter)
	}
	return c
}

// The versions of images in docker-compose.yaml's environment are those that are built and tested here.
func TestVersions(t *testing.T) {
	settings := map[string]string{}
	for file, path := range map[string]string{".env": "../../.env", "built.env": "../../deployments/compose/built.env"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
				settings[file+" "+name] = value
			}
		}
	}
	version := func(component string) string {
		v, ok := images.Version(component)
		if !ok {
			t.Fatalf("no component %s", component)
		}
		return v
	}
	etcd, nats := ":"+version(images.Etcd), ":"+strings.TrimPrefix(version(images.NATS), "v")
	for setting, want := range map[string]string{
		".env KUBERNETES_VERSION": version(images.Default), ".env ETCD_IMAGE": etcd, ".env NATS_IMAGE": nats,
		"built.env ETCD_IMAGE": etcd, "built.env NATS_IMAGE": nats,
	} {
		if !strings.HasSuffix(settings[setting], want) {
			t.Errorf("%s is %q, and %q is what is built", setting, settings[setting], want)
		}
	}
}
