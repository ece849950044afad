package authority_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/internal/testing/testserver"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
	"github.com/stoker-k8s/stoker/services/datastore/driver/internal/authority"
)

// The client certificate that a replica makes whose clock is a day ahead is good now: another replica keeps it.
func TestACertificateOfAClockThatIsADayAheadIsGoodNow(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := testserver.NewAuthority(t, key)
	a, err := authority.New(driver.Config{CA: ca.PEM, CAKey: ca.KeyPEM(t)})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	made, err := a.Access(driver.Account{User: "demo"}, driver.Access{}, now.Add(24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := a.Access(driver.Account{User: "demo"}, made, now)
	if err != nil {
		t.Fatal(err)
	}
	if string(kept.Cert) != string(made.Cert) {
		t.Error("it isn't valid, and another one was made")
	}
}
