package env

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

func pemOf(t testing.TB, typ string, der []byte, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der})
}

func TestSearch(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	sec1, err := x509.MarshalECPrivateKey(ec)
	ecPEM := pemOf(t, "EC PRIVATE KEY", sec1, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(ec)
	pkcs8PEM := pemOf(t, "PRIVATE KEY", pkcs8, err)
	rsaPEM := pemOf(t, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey), nil)
	public, err := x509.MarshalPKIXPublicKey(ec.Public())
	publicPEM := pemOf(t, "PUBLIC KEY", public, err)
	config := api.NewConfig()
	config.Clusters["c"] = &api.Cluster{Server: "https://127.0.0.1"}
	config.AuthInfos["someone"] = &api.AuthInfo{ClientKeyData: ecPEM, Token: "a-token-of-someone"}
	kubeconfig, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	const password = "correct horse battery"
	values := map[string][]byte{"ec": ecPEM, "pkcs8": pkcs8PEM, "rsa": rsaPEM, "kubeconfig": kubeconfig, "password": []byte(password)}
	asJSON := func(v any) []byte {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	logged := func(v any) []byte {
		var out bytes.Buffer
		slog.New(slog.NewTextHandler(&out, nil)).Info("made", "value", v)
		return out.Bytes()
	}
	forms := map[string]func([]byte) []byte{
		"as it is":            slices.Clone[[]byte],
		"in base64":           func(b []byte) []byte { return []byte(base64.StdEncoding.EncodeToString(b)) },
		"in base64 for URLs":  func(b []byte) []byte { return []byte(base64.RawURLEncoding.EncodeToString(b)) },
		"in hex":              func(b []byte) []byte { return []byte(hex.EncodeToString(b)) },
		"as a JSON string":    func(b []byte) []byte { return asJSON(string(b)) },
		"as a Secret in JSON": func(b []byte) []byte { return asJSON(map[string]any{"data": map[string]any{"x": b}}) },
		"as a Secret in JSON in the string of an event":  func(b []byte) []byte { return asJSON(string(asJSON(map[string][]byte{"x": b}))) },
		"as Go prints bytes in a line of a log":          func(b []byte) []byte { return logged(map[string][]byte{"x": b}) },
		"in a line of a log":                             func(b []byte) []byte { return logged(string(b)) },
		"as a Secret in JSON in a line of a log":         func(b []byte) []byte { return logged(string(asJSON(map[string][]byte{"x": b}))) },
		"in the middle of a word":                        func(b []byte) []byte { return []byte("x" + base64.StdEncoding.EncodeToString(b) + "y") },
		"in base64 of what has something else before it": func(b []byte) []byte { return []byte(base64.StdEncoding.EncodeToString(append([]byte("ab"), b...))) },
		"in base64 in base64 of what has something before": func(b []byte) []byte {
			inner := "{" + base64.StdEncoding.EncodeToString(append([]byte("a"), b...)) + "}"
			return []byte(base64.StdEncoding.EncodeToString([]byte(inner)))
		},
	}
	for n, value := range values {
		sensitive := SensitiveIn(n, value)
		if len(sensitive) == 0 {
			t.Fatalf("%s has nothing sensitive", n)
		}
		for form, write := range forms {
			text := append(append([]byte("before "), write(value)...), " after"...)
			if found := Search(sensitive, text); len(found) == 0 {
				t.Errorf("%s %s isn't found in %.300s", n, form, text)
			}
		}
		if found := Search(SensitiveIn("another password", []byte("staple of a horse")), value); len(found) > 0 {
			t.Errorf("in %s, %v is found", n, found)
		}
	}
	t.Run("what is public is not sensitive", func(t *testing.T) {
		if s := SensitiveIn("public", publicPEM); len(s) > 0 {
			t.Errorf("%v", s)
		}
		der, err := x509.MarshalPKIXPublicKey(ec.Public())
		for _, text := range [][]byte{pemOf(t, "PUBLIC KEY", der, err), der} {
			if found := Search(SensitiveIn("ec", ecPEM), text); len(found) > 0 {
				t.Errorf("%v", found)
			}
		}
	})
	t.Run("half of a key or a password is found", func(t *testing.T) {
		if found := Search(SensitiveIn("password", []byte(password)), []byte("parse "+password[:12]+" no")); len(found) == 0 {
			t.Error("the password isn't")
		}
		text := strings.ReplaceAll(string(rsaPEM), "\n", "")
		if found := Search(SensitiveIn("rsa", rsaPEM), []byte(text[len(text)/2:])); len(found) == 0 {
			t.Error("the key isn't")
		}
	})
	t.Run("what is sensitive isn't printed", func(t *testing.T) {
		if out := fmt.Sprint(SensitiveIn("the password", []byte(password))); strings.Contains(out, password) {
			t.Error(out)
		}
	})
}
