package mirror

// Whose the local object is, and how it is known. Pure.

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// belonging is how a local object stands to the remote one of its pair.
type belonging int

const (
	// own: it was made from the remote object, or there is none yet.
	own belonging = iota
	// former: it was made from an earlier remote object of the name.
	former
	// foreign: nothing says that it was made from an object of this source.
	foreign
)

// recorded is the UID of the remote object that a local one was made from, if it was made from the object of this source that it belongs to by
// its name. Of other suffixes, there may be another with the same source.
func (m *mirror) recorded(local metav1.Object) (from types.UID, ours bool) {
	a := local.GetAnnotations()
	i, ok := m.ofLocal(0, local.GetNamespace(), local.GetName())
	return types.UID(a[m.keys.RemoteUID]), ok && a[m.keys.Source] == m.Source && a[m.keys.RemoteUID] != "" && a[m.keys.RemoteName] == m.remoteObject(i)
}

// whose says how a local object stands to a remote one.
func (m *mirror) whose(remote, local metav1.Object) belonging {
	from, ours := m.recorded(local)
	source, of := local.GetAnnotations()[m.keys.Source], remote.GetAnnotations()
	switch {
	case ours && from == remote.GetUID():
		return own
	case source != "" && source != m.Source:
		return foreign
	case of[m.keys.LocalUID] == string(local.GetUID()):
		// The remote object comes from a backup, or somebody took the record off the local one.
		return own
	case ours:
		return former
	case m.Domain != name.MirrorDomain && of[m.keys.LocalUID] == "" && of[m.keys.LocalGeneration] != "" && m.claimed(remote):
		// A program that keeps no UIDs has made it.
		return own
	}
	return foreign
}

// claimed reports whether a remote object has the finalizer.
func (m *mirror) claimed(remote metav1.Object) bool {
	return slices.Contains(remote.GetFinalizers(), m.keys.Finalizer)
}

// ownerOf is the object that a local namespace was made for, if it was made for one of this source. A program that names no source has
// made those without one.
func (m *mirror) ownerOf(namespace metav1.Object) (owner string, made bool) {
	a := namespace.GetAnnotations()
	source := a[m.keys.Source]
	return a[m.keys.Owner], a[m.keys.Owner] != "" && (source == "" || source == m.Source)
}
