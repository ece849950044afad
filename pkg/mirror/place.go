package mirror

// Which objects belong together by their names. Pure.

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// namePlace stands for the object's name in the name of a Secret.
const namePlace = "{name}"

// item is a pair of objects: the index of its kind, the remote namespace, and the local name.
type item struct {
	kind int
	types.NamespacedName
}

// ofRemote is the pair that a remote object belongs to.
func (c *Config) ofRemote(kind int, namespace, object string) (item, bool) {
	bare, ends := strings.CutSuffix(object, c.RemoteSuffix)
	ok := ends && bare != "" && strings.HasPrefix(namespace, c.NamespacePrefix)
	return item{kind, types.NamespacedName{Namespace: namespace, Name: bare}}, ok
}

// ofLocal is the pair that a local object belongs to.
func (c *Config) ofLocal(kind int, namespace, object string) (item, bool) {
	bare, ends := strings.CutSuffix(namespace, c.LocalNamespaceSuffix)
	ok := ends && bare != "" && strings.HasPrefix(bare, c.NamespacePrefix)
	return item{kind, types.NamespacedName{Namespace: bare, Name: object}}, ok
}

func (c *Config) localNamespace(i item) string { return i.Namespace + c.LocalNamespaceSuffix }
func (c *Config) remoteName(i item) string     { return i.Name + c.RemoteSuffix }

// remoteObject is the remote object's namespace/name.
func (c *Config) remoteObject(i item) string { return i.Namespace + "/" + c.remoteName(i) }

// owns reports whether a pair is this process's to work on.
func (c *Config) owns(i item) bool { return c.Owns == nil || c.Owns(c.localNamespace(i), i.Name) }

// secretNames are the names of a pair's local Secrets.
func (c *Config) secretNames(i item) []string {
	var all []string
	for _, s := range c.Kinds[i.kind].Secrets {
		all = append(all, strings.ReplaceAll(s, namePlace, i.Name))
	}
	return all
}

// mayBeSecret reports whether a Secret may be one that goes up for some object of a kind; suffix ends its name.
func (c *Config) mayBeSecret(kind int, secret, suffix string) bool {
	bare, ends := strings.CutSuffix(secret, suffix)
	if !ends {
		return false
	}
	for _, s := range c.Kinds[kind].Secrets {
		before, after, has := strings.Cut(s, namePlace)
		if bare == s || has && strings.HasPrefix(bare, before) && strings.HasSuffix(bare, after) && len(bare) > len(before)+len(after) {
			return true
		}
	}
	return false
}
