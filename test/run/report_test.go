package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
)

// said is what go test says of four packages: one passes, one fails, one has no tests, and one doesn't compile.
const said = `
{"Action":"start","Package":"github.com/stoker-k8s/stoker/pkg/kube"}
{"Action":"run","Package":"github.com/stoker-k8s/stoker/pkg/kube","Test":"TestList"}
{"Action":"output","Package":"github.com/stoker-k8s/stoker/pkg/kube","Test":"TestList","Output":"=== RUN   TestList\n"}
{"Action":"output","Package":"github.com/stoker-k8s/stoker/pkg/kube","Test":"TestList","Output":"    list_test.go:7: fine\n"}
{"Action":"pass","Package":"github.com/stoker-k8s/stoker/pkg/kube","Test":"TestList","Elapsed":0.1}
{"Action":"output","Package":"github.com/stoker-k8s/stoker/pkg/kube","Test":"TestMany/more","Output":"=== RUN   TestMany\n"}
{"Action":"output","Package":"github.com/stoker-k8s/stoker/pkg/kube","Test":"TestMany/more","Output":"    list_test.go:20: takes long\n"}
{"Action":"skip","Package":"github.com/stoker-k8s/stoker/pkg/kube","Test":"TestMany/more","Elapsed":0}
{"Action":"output","Package":"github.com/stoker-k8s/stoker/pkg/kube","Test":"TestMany/most","Output":"    list_test.go:12: tried three times\n"}
{"Action":"output","Package":"github.com/stoker-k8s/stoker/pkg/kube","Test":"TestMany/most","Output":"    list_test.go:20: takes long\n"}
{"Action":"skip","Package":"github.com/stoker-k8s/stoker/pkg/kube","Test":"TestMany/most","Elapsed":0}
{"Action":"output","Package":"github.com/stoker-k8s/stoker/pkg/kube","Output":"PASS\n"}
{"Action":"output","Package":"github.com/stoker-k8s/stoker/pkg/kube","Output":"ok  \tgithub.com/stoker-k8s/stoker/pkg/kube\t1.5s\n"}
{"Action":"pass","Package":"github.com/stoker-k8s/stoker/pkg/kube","Elapsed":1.5}
{"Action":"output","Package":"github.com/stoker-k8s/stoker/pkg","Output":"?   \tgithub.com/stoker-k8s/stoker/pkg\t[no test files]\n"}
{"Action":"skip","Package":"github.com/stoker-k8s/stoker/pkg","Elapsed":0}
{"Action":"output","Package":"github.com/stoker-k8s/stoker/test/e2e","Test":"TestUp","Output":"=== RUN   TestUp\n"}
{"Action":"output","Package":"github.com/stoker-k8s/stoker/test/e2e","Test":"TestUp","Output":"    up_test.go:9: it is down\n"}
{"Action":"output","Package":"github.com/stoker-k8s/stoker/test/e2e","Test":"TestUp","Output":"--- FAIL: TestUp (3.00s)\n"}
{"Action":"fail","Package":"github.com/stoker-k8s/stoker/test/e2e","Test":"TestUp","Elapsed":3}
{"Action":"output","Package":"github.com/stoker-k8s/stoker/test/e2e","Test":"TestHung","Output":"panic: test timed out\n"}
{"Action":"output","Package":"github.com/stoker-k8s/stoker/test/e2e","Output":"FAIL\tgithub.com/stoker-k8s/stoker/test/e2e\t61s\n"}
{"Action":"fail","Package":"github.com/stoker-k8s/stoker/test/e2e","Elapsed":61}
{"ImportPath":"github.com/stoker-k8s/stoker/services/certs","Action":"build-output","Output":"certs/issue.go:3:1: nonsense\n"}
{"Action":"output","Package":"github.com/stoker-k8s/stoker/services/certs","Output":"FAIL\tgithub.com/stoker-k8s/stoker/services/certs [build failed]\n"}
{"Action":"fail","Package":"github.com/stoker-k8s/stoker/services/certs","Elapsed":0}
go: something to know
`

const printed = `
ok  	github.com/stoker-k8s/stoker/pkg/kube	1.5s
    up_test.go:9: it is down
--- FAIL: TestUp (3.00s)
panic: test timed out
FAIL	github.com/stoker-k8s/stoker/test/e2e	61s
certs/issue.go:3:1: nonsense
FAIL	github.com/stoker-k8s/stoker/services/certs [build failed]
go: something to know

  took  packages  passed  failed  skipped
    2s         1       1       0        2  pkg
    0s         1       0       1        0  services/certs
  1m1s         1       0       1        0  test/e2e

slowest:
      3s  test/e2e TestUp
      0s  pkg/kube TestList

skipped, takes long:
    2 of pkg/kube TestMany

failed:
  test/e2e TestUp
  test/e2e TestHung, which was running when its package ended
  services/certs

1 passed, 2 failed, 2 skipped in 0s
`

func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := newReport(&out, []string{"pkg", "services/certs", "test"})
		if err := r.read(strings.NewReader(strings.TrimPrefix(said, "\n"))); err != nil {
			t.Fatal(err)
		}
		r.summary()
		if !r.failed() {
			t.Error("it says that nothing failed")
		}
		if got := "\n" + out.String(); got != printed {
			t.Errorf("got %s\nwant %s", got, printed)
		}
	})
}
