package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// said is what the tests of three packages say: one passes, one fails and then hangs, and one crashes before its first test.
const said = `
{"Action":"start","Package":"pkg/kube"}
{"Action":"run","Package":"pkg/kube","Test":"TestList"}
{"Action":"output","Package":"pkg/kube","Test":"TestList","Output":"=== RUN   TestList\n"}
{"Action":"output","Package":"pkg/kube","Test":"TestList","Output":"    list_test.go:7: fine\n"}
{"Action":"pass","Package":"pkg/kube","Test":"TestList","Elapsed":0.1}
{"Action":"output","Package":"pkg/kube","Test":"TestMany/more","Output":"=== RUN   TestMany\n"}
{"Action":"output","Package":"pkg/kube","Test":"TestMany/more","Output":"    list_test.go:20: takes long\n"}
{"Action":"skip","Package":"pkg/kube","Test":"TestMany/more","Elapsed":0}
{"Action":"output","Package":"pkg/kube","Test":"TestMany/most","Output":"    list_test.go:12: tried three times\n"}
{"Action":"output","Package":"pkg/kube","Test":"TestMany/most","Output":"    list_test.go:20: takes long\n"}
{"Action":"skip","Package":"pkg/kube","Test":"TestMany/most","Elapsed":0}
{"Action":"output","Package":"pkg/kube","Output":"PASS\n"}
{"Action":"pass","Package":"pkg/kube","Elapsed":1.5}
{"Action":"output","Package":"test/e2e (1 of 2)","Test":"TestUp","Output":"=== RUN   TestUp\n"}
{"Action":"output","Package":"test/e2e (1 of 2)","Test":"TestUp","Output":"    up_test.go:9: it is down\n"}
{"Action":"output","Package":"test/e2e (1 of 2)","Test":"TestUp","Output":"--- FAIL: TestUp (3.00s)\n"}
{"Action":"fail","Package":"test/e2e (1 of 2)","Test":"TestUp","Elapsed":3}
{"Action":"output","Package":"test/e2e (1 of 2)","Test":"TestHung","Output":"panic: test timed out\n"}
{"Action":"output","Package":"test/e2e (1 of 2)","Output":"FAIL\n"}
{"Action":"output","Package":"services/certs","Output":"no server\n"}
{"Action":"fail","Package":"services/certs","Elapsed":0}
the tool's own words
`

const printed = `
the tool's own words
ok    pkg/kube  1.5 s, 1.0 s of CPU
test/e2e (1 of 2) left a process running, which was ended: sleep 100
panic: test timed out
FAIL
FAIL  test/e2e (1 of 2)  61.0 s, 2.0 s of CPU
no server
exit code 1
FAIL  services/certs  0.5 s, 0.5 s of CPU

  wall  CPU  waited  stalled  memory  passed  failed  skipped
  61.0  2.0    59.0      3.0      50       0       1        0  test/e2e (1 of 2)
   1.5  1.0     0.5      0.0     100       1       0        2  pkg/kube
   0.5  0.5     0.0      0.0       0       0       1        0  services/certs
  63.0  3.5    59.5      0.0     100       1       2        2  all

slowest:
      3s  test/e2e TestUp
      0s  pkg/kube TestList

skipped, takes long:
    2 of pkg/kube TestMany

failed:
  test/e2e (1 of 2) TestUp
  test/e2e (1 of 2) TestHung, which was running when its package ended
  services/certs

1 passed, 2 failed, 2 skipped in 1m1s
`

func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := newReport(&out)
		time.Sleep(61 * time.Second) //nolint:forbidigo // the clock of synctest
		r.begin(nil, 1, &machine{stalls: []stall{{time.Now().Add(-5 * time.Second), time.Now().Add(-2 * time.Second)}}})
		if err := r.read(strings.NewReader(strings.TrimPrefix(said, "\n"))); err != nil {
			t.Fatal(err)
		}
		for _, u := range []struct {
			name   string
			usage  usage
			failed bool
		}{
			{"pkg/kube", usage{Wall: 1500 * time.Millisecond, CPU: time.Second, Memory: 100 << 20}, false},
			{"test/e2e (1 of 2)", usage{Wall: 61 * time.Second, CPU: 2 * time.Second, Memory: 50 << 20, Code: 2, Left: []string{"sleep 100"}}, true},
			{"services/certs", usage{Wall: 500 * time.Millisecond, CPU: 500 * time.Millisecond, Code: 1}, true},
		} {
			if failed := r.ends(job{name: u.name}, u.usage, nil); failed != u.failed {
				t.Errorf("%s failed: %t", u.name, failed)
			}
		}
		if got, want := r.costs(), "test/e2e 61 2\n"; got != want {
			t.Errorf("costs %q, want %q", got, want)
		}
		r.machine = nil // what it says of the real machine differs from run to run
		r.summary()
		if !r.failed() {
			t.Error("it says that nothing failed")
		}
		want := strings.Replace(printed, "the tool's own words\n", "    up_test.go:9: it is down\n--- FAIL: TestUp (3.00s)\nthe tool's own words\n", 1)
		if got := "\n" + out.String(); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	})
}

func TestReportOfAJobThatRanTwice(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out)
	r.begin(nil, 1, &machine{})
	j := job{name: "pkg/loop"}
	fail := `{"Action":"fail","Package":"pkg/loop","Test":"TestLease"}`
	for _, passes := range []bool{false, true} {
		if err := r.read(strings.NewReader(fail)); err != nil {
			t.Fatal(err)
		}
		r.ends(j, usage{}, nil)
		first := r.takeFailures(j)
		if !passes {
			if err := r.read(strings.NewReader(fail)); err != nil {
				t.Fatal(err)
			}
		}
		r.repeated(j, first, !r.ends(j, usage{}, nil))
		if r.failed() == passes {
			t.Errorf("passed when it ran again: %t, failed: %t", passes, r.failed())
		}
		r.takeFailures(j)
	}
	r.summary()
	for _, want := range []string{
		"pkg/loop failed while the machine was stalled (pkg/loop TestLease), and failed again alone",
		"pkg/loop failed while the machine was stalled (pkg/loop TestLease), and passed alone",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q: %s", want, out.String())
		}
	}
}

func TestMissingSetUpFailsInCI(t *testing.T) {
	for _, ci := range []string{"", "true"} {
		t.Setenv("CI", ci)
		var out bytes.Buffer
		r := newReport(&out)
		r.begin(nil, 1, &machine{})
		text := `{"Action":"output","Package":"pkg/x","Test":"TestX","Output":"    x_test.go:7: set-up: no engine\n"}` + "\n" +
			`{"Action":"skip","Package":"pkg/x","Test":"TestX"}`
		if err := r.read(strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		r.ends(job{name: "pkg/x"}, usage{}, nil)
		if r.failed() != (ci != "") {
			t.Errorf("with CI=%q it failed: %t", ci, r.failed())
		}
	}
}

func TestALongTestMustHaveItsTurn(t *testing.T) {
	for _, listed := range []bool{true, false} {
		var out bytes.Buffer
		r := newReport(&out)
		r.begin(nil, 1, &machine{})
		if listed {
			r.listed = []string{"pkg/x TestX"}
		}
		text := `{"Action":"output","Package":"pkg/x","Test":"TestX/case","Output":"    x_test.go:7: long: TestY shows one case\n"}` + "\n" +
			`{"Action":"skip","Package":"pkg/x","Test":"TestX/case"}`
		if err := r.read(strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		r.ends(job{name: "pkg/x"}, usage{}, nil)
		r.summary()
		if r.failed() == listed || strings.Contains(out.String(), "lacks them:\n  pkg/x TestX\n") == listed {
			t.Errorf("listed: %t, failed: %t, report: %s", listed, r.failed(), out.String())
		}
	}
}
