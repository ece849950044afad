package release

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"

	helmrelease "helm.sh/helm/v4/pkg/release"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
)

// history is where Helm keeps the revisions of one release: Secrets in the tenant, as helm's own, which are read once. An operation is alone
// with the release, and a revision is up to a megabyte. It is Helm's storage driver.
type history struct {
	*driver.Secrets
	secrets       corev1client.SecretInterface
	makeNamespace func() error

	read bool
	// revisions are in their order.
	revisions []*release.Release
	// lost is why what Helm wanted to note last couldn't be; it often goes on without a word.
	lost error
}

func newHistory(secrets corev1client.SecretInterface, makeNamespace func() error) *history {
	secrets = bounded{secrets}
	h := &history{Secrets: driver.NewSecrets(secrets), secrets: secrets, makeNamespace: makeNamespace}
	h.SetLogger(slog.DiscardHandler)
	return h
}

// secretName of a revision.
func secretName(releaseName string, revision int) string {
	return "sh.helm.release.v1." + releaseName + ".v" + strconv.Itoa(revision)
}

// load reads the revisions of a release.
func (h *history) load(of string) error {
	found, err := h.Secrets.Query(map[string]string{"name": of, "owner": "helm"})
	if err != nil && !errors.Is(err, driver.ErrReleaseNotFound) {
		return err
	}
	h.revisions = nil
	for _, f := range found {
		if r, ok := f.(*release.Release); ok {
			h.revisions = append(h.revisions, r)
		}
	}
	slices.SortFunc(h.revisions, func(a, b *release.Release) int { return a.Version - b.Version })
	h.read = true
	return nil
}

// last is the latest revision, nil for none.
func (h *history) last() *release.Release {
	if len(h.revisions) == 0 {
		return nil
	}
	return h.revisions[len(h.revisions)-1]
}

// in is the latest revision in a state, nil for none.
func (h *history) in(status common.Status) *release.Release {
	for _, r := range slices.Backward(h.revisions) {
		if r.Info.Status == status {
			return r
		}
	}
	return nil
}

// Query returns the revisions with labels, of which Helm asks for name, owner and status.
func (h *history) Query(labels map[string]string) ([]helmrelease.Releaser, error) {
	if !h.read {
		if err := h.load(labels["name"]); err != nil {
			return nil, err
		}
	}
	var found []helmrelease.Releaser
	for _, r := range h.revisions {
		if status := labels["status"]; status == "" || status == r.Info.Status.String() {
			found = append(found, r)
		}
	}
	if len(found) == 0 {
		return nil, driver.ErrReleaseNotFound
	}
	return found, nil
}

// Create notes a revision, in the release's namespace, which is made where there is none.
func (h *history) Create(key string, r helmrelease.Releaser) error {
	err := h.Secrets.Create(key, r)
	if apierrors.IsNotFound(err) {
		if err = h.makeNamespace(); err == nil {
			err = h.Secrets.Create(key, r)
		}
	}
	if h.lost = err; err != nil {
		return err
	}
	if made, ok := r.(*release.Release); ok {
		h.revisions = append(h.revisions, made)
	}
	return nil
}

// Update notes a revision that is there.
func (h *history) Update(key string, r helmrelease.Releaser) error {
	h.lost = h.Secrets.Update(key, r)
	return h.lost
}

// Delete forgets a revision. That it isn't there is no error.
func (h *history) Delete(key string) (helmrelease.Releaser, error) {
	err := h.secrets.Delete(context.Background(), key, metav1.DeleteOptions{}) // ends with the operation, whose transport it has
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	for i, r := range h.revisions {
		if secretName(r.Name, r.Version) == key {
			h.revisions = slices.Delete(slices.Clone(h.revisions), i, i+1)
			return r, nil
		}
	}
	return nil, driver.ErrReleaseNotFound
}

// note notes a revision with another state.
func (h *history) note(r *release.Release, status common.Status, description string) error {
	r.SetStatus(status, description)
	return h.Update(secretName(r.Name, r.Version), r)
}

// has reports whether there is a release of the TenantAddon.
func (h *history) has(id ID) bool { return h.last() != nil && h.taken(id) == nil }

// taken says whose the release is, if it isn't the TenantAddon's: it was made by somebody else. One that was given up by [Cluster.Forget]
// is anybody's.
func (h *history) taken(id ID) error {
	last := h.last()
	if last == nil {
		return nil
	}
	addon, is := last.Labels[name.LabelTenantAddon]
	namespace := last.Labels[name.LabelTenantAddonNamespace]
	switch {
	case is && addon == "", is && addon == id.Addon.Name && namespace == id.Addon.Namespace:
		return nil
	case is:
		return newError(tenantaddon.ReasonTaken, nil, "Helm release %s in namespace %s is that of TenantAddon %s/%s; give this one another releaseName",
			id.Name, id.Namespace, namespace, addon)
	}
	return newError(tenantaddon.ReasonTaken, nil,
		"Helm release %s in namespace %s was made by somebody in the tenant; uninstall it there, or give the TenantAddon another releaseName",
		id.Name, id.Namespace)
}
