package drivertest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// sizes shows that a driver.Sizer knows what tenants hold.
func (c contract) sizes(t *testing.T) {
	t.Helper()
	d := c.Driver
	if sizer, ok := d.(driver.Sizer); ok {
		t.Run("the sizes of all tenants are told, and of nobody else", func(t *testing.T) {
			a, ta := c.provision(t, "much")
			b, tb := c.provision(t, "little")
			for i := range 200 {
				must(t, ta.Write(t.Context(), a.Schema, fmt.Sprint("key", i), strings.Repeat("v", 1000)))
			}
			for i := range 20 {
				must(t, tb.Write(t.Context(), b.Schema, fmt.Sprint("key", i), "value"))
			}
			Eventually(t, func() error {
				sizes, err := sizer.Sizes(t.Context())
				if err != nil {
					return err
				}
				much, little := sizes[a.Schema], sizes[b.Schema]
				keys := much.Keys >= 180 && much.Keys <= 220 && little.Keys >= 10 && little.Keys <= 30
				bytes := much.Bytes >= 200_000 && little.Bytes > 0 && little.Bytes < much.Bytes
				if len(sizes) != 2 || !keys || !bytes {
					return fmt.Errorf("sizes are %v", sizes)
				}
				return nil
			})
			c.drop(t, a)
			c.drop(t, b)
			if sizes, err := sizer.Sizes(t.Context()); err != nil || len(sizes) > 0 {
				t.Errorf("after the drop: %v, %v", sizes, err)
			}
		})
	}
}

// atOnce measures how long accounts take, one and many at once.
func (c contract) atOnce(t *testing.T) {
	t.Helper()
	d := c.Driver
	for _, n := range []int{1, 50} {
		t.Run(fmt.Sprintf("measured: %d provisioned and dropped at once", n), func(t *testing.T) {
			measure := func(what string, step func(a driver.Account) error) {
				took := make([]time.Duration, n)
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() {
						began := time.Now()
						if err := Persist(func() error { return step(account(fmt.Sprint("many", i))) }); err != nil {
							t.Errorf("%s %d: %v", what, i, err)
						}
						took[i] = time.Since(began)
					})
				}
				wg.Wait()
				slices.Sort(took)
				t.Logf("%s: median %s, max %s", what, took[n/2].Round(100*time.Microsecond), took[n-1].Round(100*time.Microsecond))
			}
			measure("provision", func(a driver.Account) error { _, err := d.Provision(t.Context(), a); return err })
			measure("provision again", func(a driver.Account) error { _, err := d.Provision(t.Context(), a); return err })
			measure("drop", func(a driver.Account) error { _, err := d.Drop(t.Context(), a); return err })
		})
	}
}
