package release

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
)

const (
	// mostRevisions is how many revisions of a release are read at most. We keep fewer.
	mostRevisions = 16
	// largestRevision is how many bytes a revision may have when it is unpacked. Packed, it is a Secret.
	largestRevision = 32 << 20
)

// bounded are Secrets that whoever is in the tenant can have made: they must not cost this process its memory, which is shared with other tenants.
type bounded struct{ corev1client.SecretInterface }

// List lists the revisions of a release.
func (b bounded) List(ctx context.Context, o metav1.ListOptions) (*corev1.SecretList, error) {
	o.Limit = mostRevisions
	list, err := b.SecretInterface.List(ctx, o)
	if err != nil {
		return nil, err
	}
	if list.Continue != "" {
		return nil, newError(tenantaddon.ReasonTaken, nil, "there are more than %d Secrets with %s; delete those that aren't needed", mostRevisions, o.LabelSelector)
	}
	for i := range list.Items {
		if err := small(&list.Items[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Get reads a revision of a release.
func (b bounded) Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Secret, error) {
	s, err := b.SecretInterface.Get(ctx, name, o)
	if err != nil {
		return nil, err
	}
	return s, small(s)
}

// small checks that a revision isn't too large once it is unpacked. What is no revision isn't unpacked.
func small(s *corev1.Secret) error {
	unpacked, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(s.Data["release"])))
	if err != nil {
		return nil //nolint:nilerr // Helm finds that out
	}
	if _, err := io.CopyN(io.Discard, unpacked, largestRevision); err == nil {
		return newError(tenantaddon.ReasonTaken, nil,
			"Secret %s/%s is no revision of a Helm release: unpacked, it has more than %d MB; delete it", s.Namespace, s.Name, largestRevision>>20)
	}
	return nil
}
