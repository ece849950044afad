package intake

// Namespaces in which nothing is commanded: the cluster's own, this installation's, and those of --forbidden-namespaces.

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// forbidden are names of namespaces, or beginnings of names followed by an asterisk.
type forbidden []string

// forbiddenNamespaces adds those of a comma-separated list to what is always forbidden.
func forbiddenNamespaces(list string) (forbidden, error) {
	all := forbidden{"kube-*", name.SystemNamespace}
	for _, n := range strings.Split(list, ",") {
		if n = strings.TrimSpace(n); n == "" {
			continue
		}
		// A beginning may end in a dash, a name may not.
		start, some := strings.CutSuffix(n, "*")
		if len(validation.IsDNS1123Label(n)) > 0 && (!some || len(validation.IsDNS1123Label(start+"x")) > 0) {
			return nil, fmt.Errorf("--forbidden-namespaces: %q must be the name of a namespace, or a beginning of names and *", n)
		}
		all = append(all, n)
	}
	return all, nil
}

// check refuses a namespace that is forbidden.
func (f forbidden) check(namespace string) error {
	for _, n := range f {
		start, some := strings.CutSuffix(n, "*")
		if n == namespace || some && strings.HasPrefix(namespace, start) {
			return refuse("metadata.namespace", event.RuleForbidden, namespace,
				"nothing is commanded in namespaces "+strings.Join(f, ", ")+" (--forbidden-namespaces of intake); choose another")
		}
	}
	return nil
}
