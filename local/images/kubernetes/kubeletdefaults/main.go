// Command kubeletdefaults prints the KubeletConfiguration that a kubelet makes of an empty one: the document that patches of
// spec.kubernetes.kubelet.configurationJSONPatches are written against. It stands with the control plane's own module, for the
// packages that know the defaults are the kubelet's, and no service has use for the rest of them.
package main

import (
	"log"
	"os"

	"k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"

	"k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

func main() {
	s, _, err := scheme.NewSchemeAndCodecs()
	if err != nil {
		log.Fatal(err)
	}
	c := &v1beta1.KubeletConfiguration{}
	s.Default(c)
	c.SetGroupVersionKind(v1beta1.SchemeGroupVersion.WithKind("KubeletConfiguration"))
	// Where resolv.conf is, and which cgroup driver there is, each node finds out.
	c.ResolverConfig, c.CgroupDriver = nil, ""
	text, err := yaml.Marshal(c)
	if err != nil {
		log.Fatal(err)
	}
	_, _ = os.Stdout.WriteString("# What kubelet v1.36 makes of an empty KubeletConfiguration. Made by go generate; do not edit.\n" + string(text))
}
