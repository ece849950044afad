package env

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
)

// Sensitive is what must be nowhere but in its Secret: bytes that give the secret away, in whatever form they are written down.
type Sensitive struct {
	// What it is and where it belongs, for the message of a test that found it elsewhere.
	What  string
	bytes []byte
}

// SensitiveIn returns what is sensitive in a value: the private numbers of the keys in PEM, the keys, tokens and passwords in a
// kubeconfig, and all of anything else that isn't a certificate or a public key.
func SensitiveIn(what string, value []byte) []Sensitive {
	if all, ok := inPEM(what, value); ok {
		return all
	}
	if config, err := clientcmd.Load(value); err == nil && len(config.Clusters) > 0 {
		var all []Sensitive
		for n, user := range config.AuthInfos {
			all = append(all, SensitiveIn(what+", key of "+n, user.ClientKeyData)...)
			all = append(all, SensitiveIn(what+", token of "+n, []byte(user.Token))...)
			all = append(all, SensitiveIn(what+", password of "+n, []byte(user.Password))...)
		}
		return all
	}
	if value = bytes.TrimSpace(value); len(value) == 0 {
		return nil
	}
	return halves(what, value)
}

// halves of what is long enough, so that a part of it is found, too.
func halves(what string, value []byte) []Sensitive {
	half := len(value) / 2
	if half < 8 {
		return []Sensitive{{what, value}}
	}
	return []Sensitive{{what, value[:half]}, {what, value[half:]}}
}

// inPEM returns the private numbers of the keys in PEM; false for other texts.
func inPEM(what string, value []byte) (all []Sensitive, ok bool) {
	for {
		var block *pem.Block
		if block, value = pem.Decode(value); block == nil {
			return all, ok
		}
		ok = true
		if !strings.HasSuffix(block.Type, "PRIVATE KEY") {
			continue
		}
		for _, number := range privateNumbers(block.Bytes) {
			all = append(all, halves(what, number)...)
		}
	}
}

// privateNumbers are what a private key has beyond its public key; all of it when it can't be parsed.
func privateNumbers(der []byte) [][]byte {
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		if k, err := x509.ParseECPrivateKey(der); err == nil {
			key = k
		} else if k, err := x509.ParsePKCS1PrivateKey(der); err == nil {
			key = k
		}
	}
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		if number, err := k.Bytes(); err == nil {
			return [][]byte{number}
		}
	case *rsa.PrivateKey:
		return [][]byte{k.D.Bytes(), k.Primes[0].Bytes(), k.Primes[1].Bytes()}
	case ed25519.PrivateKey:
		return [][]byte{k.Seed()}
	}
	return [][]byte{der}
}

// Search says which of what is sensitive a text has: as it is, in base64, hex or decimal numbers, over several lines, and encoded several times
// over, as a kubeconfig in a Secret in a JSON object is.
func Search(all []Sensitive, text []byte) (found []string) {
	has := map[string]bool{}
	look := func(text []byte) {
		for _, s := range all {
			if !has[s.What] && bytes.Contains(text, s.bytes) {
				has[s.What] = true
				found = append(found, s.What)
			}
		}
	}
	for range maxNested {
		look(text)
		text = lineBreaks.ReplaceAll(text, nil)
		look(text)
		if text = decoded(text); len(text) == 0 {
			break
		}
	}
	slices.Sort(found)
	return found
}

// maxNested is how often a text is decoded, less one.
const maxNested = 4

var (
	lineBreaks = regexp.MustCompile(`\\+[nr]|[\r\n]`)
	encoded    = regexp.MustCompile(`[A-Za-z0-9+/_-]{20,}`)
	hexadec    = regexp.MustCompile(`[A-Fa-f0-9]{20,}`)
	decimal    = regexp.MustCompile(`(\d{1,3}[ ,]){8,}\d{1,3}`)
	numbers    = regexp.MustCompile(`\d+`)
	standard   = strings.NewReplacer("-", "+", "_", "/")
)

// decoded is all that may be base64, hex or decimal numbers in a text, decoded. Where such a run begins isn't known, so that each is decoded from
// each of the places where its first group may.
func decoded(text []byte) []byte {
	var out bytes.Buffer
	for _, run := range encoded.FindAll(text, -1) {
		s := standard.Replace(string(run))
		for from := range 4 {
			if d, err := base64.RawStdEncoding.DecodeString(s[from : len(s)-(len(s)-from)%4]); err == nil {
				out.Write(d)
				// What is left of a group that isn't full.
				if rest, err := base64.RawStdEncoding.DecodeString(loose(s[len(s)-(len(s)-from)%4:])); err == nil {
					out.Write(rest)
				}
				out.WriteByte(0)
			}
		}
	}
	for _, list := range decimal.FindAll(text, -1) {
		for _, number := range numbers.FindAll(list, -1) {
			if n, err := strconv.ParseUint(string(number), 10, 8); err == nil {
				out.WriteByte(byte(n))
			}
		}
		out.WriteByte(0)
	}
	for _, run := range hexadec.FindAll(text, -1) {
		for from := range 2 {
			if d, err := hex.DecodeString(string(run[from : len(run)-(len(run)-from)%2])); err == nil {
				out.Write(d)
				out.WriteByte(0)
			}
		}
	}
	return out.Bytes()
}

// loose is a last group of base64 that can be decoded: one character alone says nothing.
func loose(group string) string {
	if len(group) < 2 {
		return ""
	}
	return group
}

// String keeps what is sensitive out of the logs of tests.
func (s Sensitive) String() string { return fmt.Sprintf("%s (%d bytes)", s.What, len(s.bytes)) }
