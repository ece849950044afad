package store

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

func secret(n string) types.NamespacedName { return types.NamespacedName{Namespace: "s", Name: n} }

func ref(n, key string) v1alpha1.ContentRef {
	return v1alpha1.ContentRef{SecretReference: &v1alpha1.SecretReference{SecretReference: corev1.SecretReference{Namespace: "s", Name: n}, KeyPath: key}}
}

func TestSecretsOf(t *testing.T) {
	o := &v1alpha1.DataStore{}
	key := ref("ca", "ca.key")
	o.Spec.TLSConfig = &v1alpha1.TLSConfig{
		CertificateAuthority: v1alpha1.CertKeyPair{Certificate: ref("ca", "ca.crt"), PrivateKey: &key},
		ClientCertificate:    &v1alpha1.ClientCertificate{Certificate: ref("client", "tls.crt"), PrivateKey: ref("client", "tls.key")},
	}
	o.Spec.BasicAuth = &v1alpha1.BasicAuth{Username: v1alpha1.ContentRef{Content: []byte("root")}, Password: ref("auth", "password")}
	if got := secretsOf(o); !slices.Equal(got, []types.NamespacedName{secret("auth"), secret("ca"), secret("client")}) {
		t.Error(got)
	}
	inPlace := ref("unused", "x")
	inPlace.Content = []byte("in place wins")
	o.Spec.BasicAuth.Password = inPlace
	if got := secretsOf(o); slices.Contains(got, secret("unused")) || secretsOf(nil) != nil {
		t.Error(got)
	}
}

func TestReferences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		watched, told := map[types.NamespacedName]func(){}, []string{}
		r := newReferences(nil, func(_ context.Context, n string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, n)
		})
		r.watch = func(ctx context.Context, s types.NamespacedName, changed func()) error {
			mu.Lock()
			watched[s] = changed
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			delete(watched, s)
			return nil
		}
		are := func(want ...types.NamespacedName) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(watched) != len(want) {
				t.Errorf("%d watches", len(watched))
			}
			for _, s := range want {
				if watched[s] == nil {
					t.Errorf("%s isn't watched", s)
				}
			}
		}
		r.set("one", []types.NamespacedName{secret("a"), secret("b")})
		are() // nothing runs yet
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.run(ctx) }()
		are(secret("a"), secret("b"))
		r.set("two", []types.NamespacedName{secret("b"), secret("c")})
		are(secret("a"), secret("b"), secret("c"))
		watched[secret("b")]()
		synctest.Wait()
		if slices.Sort(told); !slices.Equal(told, []string{"one", "two"}) {
			t.Error(told)
		}
		r.set("one", nil)
		are(secret("b"), secret("c"))
		stop()
		<-done
		are()
		ctx, stop = context.WithCancel(t.Context())
		defer stop()
		go r.run(ctx)
		are(secret("b"), secret("c"))
	})
}
