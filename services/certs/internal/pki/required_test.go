package pki

import "testing"

// States keep the fingerprint of the input; another one for the same input would make every tenant's Secrets be checked again
// after an update of Stoker.
func TestTheFingerprintOfAnInputStays(t *testing.T) {
	t.Parallel()
	in := demo()
	if got := in.Hash(); got != "e3e9b629ad693c53e12c18c23fc2b8de" {
		t.Errorf("got %s", got)
	}
	in.Exposed = nil
	if got := in.Hash(); got != "9cb7b5674cae2ed4ff256d105a38b933" {
		t.Errorf("without an endpoint: got %s", got)
	}
}

func TestWhatNeedsTheEndpoint(t *testing.T) {
	t.Parallel()
	in := demo()
	in.Exposed, in.Konnectivity = nil, true
	roots, leaves, err := Required(in)
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]bool{}
	for _, w := range append(roots, leaves...) {
		made[w.Component] = true
	}
	for component := range Components("demo") {
		if made[component] == NeedsEndpoint(component) {
			t.Errorf("%s is made before the endpoint is known: %t", component, made[component])
		}
	}
}
