// Package imagebuilder builds Stoker's container images: static programs on nothing but certificates and time zones, for amd64 and arm64,
// the same bytes from the same sources, each with an SBOM. It needs only Go; deployments/docker/Dockerfile makes the same files with a
// container engine.
package imagebuilder

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stoker-k8s/stoker/local/images"
	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// Image is a container image.
type Image struct {
	// Name is the last part of the image's reference: stoker-certs.
	Name string
	// Description is one sentence, for the label of that name.
	Description string
	// Package is that of the program, as go build takes it in the root of the repository. The program has the image's name.
	Package string
	// Tools are packages of programs that the image has as well.
	Tools []string
	// Node has the image carry the programs that pods of the local stack run, and the manifests of an installation.
	Node bool
	// Ports that the program listens on unless it is told otherwise, such as 8080/tcp.
	Ports []string
	// Component is what a program of another project is built from, one of images.Names; then there is no Package.
	Component string
	// Program of the component.
	Program string
	// Path of the program in the image. Others' are where their own projects' images have them.
	Path string
	// Version is the tag of another project's image; Stoker's own have the version of the build.
	Version string
}

// binaries is the directory of Stoker's programs in their images.
const binaries = "/usr/bin/"

// Images are Stoker's own: one for each service, the command line, and the node of docker-compose.yaml.
func Images() []Image {
	descriptions := map[string]string{
		name.ServiceIntake:       "Turns commands into objects of the management cluster, and objects into desired state.",
		name.ServiceCerts:        "Issues and renews the keys, certificates and kubeconfigs of tenants.",
		name.ServiceDatastore:    "Provisions tenants in their DataStores, and cleans up after them.",
		name.ServiceWorkload:     "Runs tenants' control planes: Services, Deployments, routes and rollouts.",
		name.ServiceAddons:       "Keeps what belongs into each tenant: kubeadm's objects, CoreDNS, kube-proxy.",
		name.ServiceStatus:       "Tells what became of each tenant: API status, status events, answers, metrics.",
		name.ServiceCAPI:         "Makes tenants of the control planes of Cluster API, and tells it where they stand.",
		name.ServiceTenantAddons: "Installs in tenants the software that TenantAddons say, wave by wave, and keeps it there.",
	}
	var all []Image
	for _, service := range name.Services() {
		program := "stoker-" + service
		all = append(all, Image{
			Name: program, Description: descriptions[service], Path: binaries + program, Ports: []string{"8080/tcp"},
			Package: "./services/" + service + "/cmd/" + program,
		})
	}
	return append(all, Image{
		Name: images.Gate, Description: "Stands between a tenant's API server and its data while these move to another DataStore.",
		Package: "./services/datastore/cmd/" + images.Gate, Path: binaries + images.Gate,
	}, Image{
		Name: "stoker", Description: "The command line of Stoker: managed Kubernetes control planes, by event.",
		Package: "./cmd/stoker", Path: binaries + "stoker",
	}, Image{
		Name: "stoker-node", Description: "The keys, first objects and process node of docker-compose.yaml, with the programs of tenants' pods.",
		Package: "./local/compose/cmd/stoker-node", Path: binaries + "stoker-node", Tools: []string{"./local/compose/cmd/probe"}, Node: true,
	})
}

// Tests are images for pods that tests run, which are built when they are named only.
func Tests() []Image {
	const program = "stoker-test-inside"
	return []Image{{
		Name: program, Description: "What tests of Stoker run inside a tenant: a webhook and an aggregated API.",
		Package: "./test/inside/cmd/" + program, Path: binaries + program,
	}}
}

// others tells whether programs of other projects are in an image, which are built for this machine alone.
func (i Image) others() bool { return i.Component != "" || i.Node }

// Components are images of other projects' programs that an installation runs, built from their sources for where their own images
// can't be pulled. They have those images' names, tags and paths, so that a registry with them stands in for the public ones.
func Components() []Image {
	described := func(program, component, path, what string) Image {
		version, _ := images.Version(component)
		return Image{
			Name: program, Component: component, Program: program, Path: path, Version: version,
			Description: what + " " + version + ", built from its sources for where its own image can't be pulled.",
		}
	}
	var all []Image
	for _, component := range images.Names() {
		switch {
		case strings.HasPrefix(component, "kubernetes-"):
			for _, program := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
				all = append(all, described(program, component, "/usr/local/bin/"+program, program))
			}
		case component == images.Etcd:
			all = append(all, described("etcd", component, "/usr/local/bin/etcd", "etcd"))
		case component == images.NATS:
			nats := described("nats-server", component, "/nats-server", "The NATS server")
			nats.Name, nats.Version = "nats", strings.TrimPrefix(nats.Version, "v") // as its project names them
			all = append(all, nats)
		case component == "kine":
			all = append(all, described("kine", component, "/bin/kine", "kine"))
		case component == images.Konnectivity:
			all = append(all, described("proxy-server", component, "/proxy-server", "konnectivity's server"),
				described("proxy-agent", component, "/proxy-agent", "konnectivity's agent"))
		}
	}
	return all
}

// Select are the images with these names; all of Stoker's own without a name.
func Select(names []string) ([]Image, error) {
	if len(names) == 0 {
		return Images(), nil
	}
	all := slices.Concat(Images(), Components(), Tests())
	var known, selected []string
	for _, i := range all {
		if !slices.Contains(known, i.Name) {
			known = append(known, i.Name)
		}
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("there is no image %q; there are %s", n, strings.Join(known, ", "))
		}
		selected = append(selected, n)
	}
	return slices.DeleteFunc(all, func(i Image) bool { return !slices.Contains(selected, i.Name) }), nil
}
