package mirror

import (
	"cmp"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/pkg/metric"
)

func TestWhose(t *testing.T) {
	k := name.Mirror(name.MirrorDomain)
	type annotations = map[string]string
	made := func(source, from, uid string) annotations {
		return annotations{k.Source: source, k.RemoteName: from, k.RemoteUID: uid}
	}
	for what, c := range map[string]struct {
		remote, local annotations
		held          bool
		domain        string // another program's, whose keys are named as ours here
		want          belonging
	}{
		"made from it":                               {local: made("here", "a/x-eu", "r"), want: own},
		"made from an earlier one":                   {local: made("here", "a/x-eu", "before"), want: former},
		"made from one with another suffix":          {local: made("here", "a/x", "r"), want: foreign},
		"nothing says so":                            {want: foreign},
		"made from another source":                   {local: made("there", "a/x-eu", "r"), want: foreign},
		"another source's, though the remote claims": {remote: annotations{k.LocalUID: "l"}, local: annotations{k.Source: "there"}, want: foreign},
		"the remote object comes from a backup":      {remote: annotations{k.LocalUID: "l"}, local: made("here", "a/x-eu", "before"), want: own},
		"the record was taken off":                   {remote: annotations{k.LocalUID: "l"}, want: own},
		"another one was made in its place":          {remote: annotations{k.LocalUID: "before"}, held: true, want: foreign},
		"a program without UIDs made it":             {remote: annotations{k.LocalGeneration: "3"}, held: true, domain: "example.com", want: own},
		"somebody wrote that, without the finalizer": {remote: annotations{k.LocalGeneration: "3"}, domain: "example.com", want: foreign},
		"somebody wrote that, and there is no other": {remote: annotations{k.LocalGeneration: "3"}, held: true, want: foreign},
	} {
		t.Run(what, func(t *testing.T) {
			m := &mirror{Config: Config{Source: "here", RemoteSuffix: "-eu", Domain: cmp.Or(c.domain, name.MirrorDomain)}, keys: k}
			remote, local := &metav1.ObjectMeta{UID: "r", Annotations: c.remote}, &metav1.ObjectMeta{Namespace: "a", Name: "x", UID: "l", Annotations: c.local}
			if c.held {
				remote.Finalizers = []string{k.Finalizer}
			}
			if got := m.whose(remote, local); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func TestContains(t *testing.T) {
	for what, c := range map[string]struct {
		live, want string
		is         bool
	}{
		"more is there":           {`{"a":1,"b":{"c":[{"d":1,"e":2}]}}`, `{"b":{"c":[{"d":1}]}}`, true},
		"another value":           {`{"a":1}`, `{"a":2}`, false},
		"nothing there":           {`{}`, `{"a":1}`, false},
		"an empty object":         {`{"a":null}`, `{"a":{}}`, true},
		"lists of another length": {`{"a":[1,2]}`, `{"a":[1]}`, false},
		"a list in another order": {`{"a":[1,2]}`, `{"a":[2,1]}`, false},
	} {
		t.Run(what, func(t *testing.T) {
			if contains(decoded(t, c.live), decoded(t, c.want)) != c.is {
				t.Error(!c.is)
			}
		})
	}
}

func decoded(t *testing.T, s string) (m map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(s), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMergePatch(t *testing.T) {
	for what, c := range map[string]struct{ from, to, want string }{
		"the same":           {`{"a":{"b":1}}`, `{"a":{"b":1}}`, `{}`},
		"what is new":        {`{"a":1}`, `{"a":1,"b":[1]}`, `{"b":[1]}`},
		"what is gone":       {`{"a":{"b":1,"c":2}}`, `{"a":{"c":2}}`, `{"a":{"b":null}}`},
		"of another type":    {`{"a":{"b":1}}`, `{"a":"b"}`, `{"a":"b"}`},
		"lists are replaced": {`{"a":[1,2]}`, `{"a":[1]}`, `{"a":[1]}`},
	} {
		t.Run(what, func(t *testing.T) {
			if got := mergePatch(decoded(t, c.from), decoded(t, c.to)); !reflect.DeepEqual(got, decoded(t, c.want)) {
				t.Errorf("got %v, want %s", got, c.want)
			}
		})
	}
}

func TestUnbelievable(t *testing.T) {
	x := func(n string) item { return item{0, types.NamespacedName{Namespace: "a", Name: n}} }
	made := map[item]types.UID{}
	for _, n := range strings.Split("abcdefghij", "") {
		made[x(n)] = types.UID(n)
	}
	for what, c := range map[string]struct {
		there     string // letters of the objects there are; a capital one is another object of the name
		unlisted  bool
		unseen    bool // by this process, before they were missing
		believing bool
		forGood   bool
	}{
		"one is gone":                    {there: "abcdefghi", believing: true},
		"a fifth":                        {there: "abcdefgh", believing: true},
		"more":                           {there: "abcdefg", forGood: true},
		"others have their names":        {there: "ABCdefghij", forGood: true},
		"all":                            {there: "", forGood: true},
		"one is gone since nobody knows": {there: "abcdefghi", unseen: true, forGood: true},
		"local objects aren't all known": {there: "abcdefghi", unlisted: true},
	} {
		t.Run(what, func(t *testing.T) {
			all := map[item]types.UID{}
			for _, n := range strings.Split(c.there, "") {
				all[x(strings.ToLower(n))] = types.UID(n)
			}
			if c.there == "" {
				clear(all)
			}
			gone := x("j")
			if c.there == "ABCdefghij" {
				gone = x("a")
			}
			i := &index{kinds: []kindIndex{{made: made, localListed: !c.unlisted}}}
			if !c.unseen {
				i.follows(gone, made[gone])
			}
			if why, forGood := i.unbelievable(gone, made[gone], all, 0.2); (why == "") != c.believing || forGood != c.forGood {
				t.Errorf("got %q, for good: %v", why, forGood)
			}
			maps.Copy(all, made) // all but one are back
			delete(all, gone)
			if why, _ := i.unbelievable(gone, made[gone], all, 0.2); (why == "") != (c.believing) && c.forGood {
				t.Errorf("then %q", why)
			}
		})
	}
}

func TestNamesOfSecrets(t *testing.T) {
	c := &Config{Kinds: []Kind{{Secrets: []string{"token", "{name}-admin"}}}}
	for n, want := range map[string]bool{"token": true, "x-admin": true, "-admin": false, "x-admin-eu": false, "tokens": false} {
		if got := c.mayBeSecret(0, n, ""); got != want {
			t.Errorf("%s: %v", n, got)
		}
	}
	if !c.mayBeSecret(0, "x-admin-eu", "-eu") || c.mayBeSecret(0, "x-admin", "-eu") {
		t.Error("the suffix is that of remote names")
	}
}

func TestTheBrakeSlowsDownWhatIsWrittenAgainAndAgain(t *testing.T) {
	q := newQueue()
	defer q.ShutDown()
	i := item{0, types.NamespacedName{Namespace: "a", Name: "x"}}
	for range 8 {
		q.looked(i, true, nil)
	}
	if rest := time.Until(q.braked[i]); rest < 300*time.Millisecond {
		t.Errorf("it pauses for %s", rest)
	}
	q.news(i)
	if q.Len() > 0 {
		t.Error("it is looked at during the pause")
	}
	q.looked(i, false, nil)
	q.looked(i, true, nil)
	if _, braked := q.braked[i]; braked {
		t.Error("one look with nothing to write ends it")
	}
	for range 8 {
		q.looked(i, true, errors.New("a Secret is missing"))
	}
	if rest := time.Until(q.braked[i]); rest < 300*time.Millisecond {
		t.Errorf("after looks that end in an error it pauses for %s", rest)
	}
}

func TestWrongConfig(t *testing.T) {
	k, err := kube.New(&rest.Config{Host: "http://localhost:1"}, kube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	for want, change := range map[string]func(*Config){
		"Local and Remote":            func(c *Config) { c.Remote = nil },
		"Log is needed":               func(c *Config) { c.Log = nil },
		"nothing to do":               func(c *Config) { c.Kinds = nil },
		"isn't namespaced":            func(c *Config) { c.Kinds = []Kind{{Resource: kube.DataStores}} },
		"there twice":                 func(c *Config) { c.Kinds = append(c.Kinds, c.Kinds...) },
		`Secret "A"`:                  func(c *Config) { c.Kinds[0].Secrets = []string{"A"} },
		`RemoteSuffix "_"`:            func(c *Config) { c.RemoteSuffix = "_" },
		`LocalNamespaceSuffix "-"`:    func(c *Config) { c.LocalNamespaceSuffix = "-" },
		`Domain "A"`:                  func(c *Config) { c.Domain = "A" },
		`Source "a/b"`:                func(c *Config) { c.Source = "a/b" },
		`Propagation "No" is none of`: func(c *Config) { c.Propagation = "No" },
		"MaxMissing 2 must be":        func(c *Config) { c.MaxMissing = 2 },
		"must not be negative":        func(c *Config) { c.Grace = -1 },
	} {
		c := Config{Local: k, Remote: k, Log: slog.Default(), Kinds: []Kind{{Resource: kube.TenantControlPlanes}}}
		change(&c)
		if err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestConnectRunsNothingAndReadsNoFile(t *testing.T) {
	const form = `{"clusters":[{"name":"c","cluster":{"server":"https://localhost"%s}}],"users":[{"name":"c","user":{%s}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}],"current-context":"c"}`
	for want, c := range map[string][2]string{
		"user.exec is refused":                        {"", `"exec":{"command":"id","apiVersion":"client.authentication.k8s.io/v1","interactiveMode":"Never"}`},
		"user.auth-provider is refused":               {"", `"auth-provider":{"name":"gcp"}`},
		"user.tokenFile is refused":                   {"", `"tokenFile":"/etc/passwd"`},
		"cluster.certificate-authority is refused":    {`,"certificate-authority":"/etc/passwd"`, `"token":"x"`},
		"cluster.insecure-skip-tls-verify is refused": {`,"insecure-skip-tls-verify":true`, `"token":"x"`},
		"cluster.proxy-url is refused":                {`,"proxy-url":"http://p"`, `"token":"x"`},
		"cluster.certificate-authority-data: must be": {"", `"token":"x"`},
	} {
		k, err := Connect([]byte(strings.Replace(strings.Replace(form, "%s", c[0], 1), "%s", c[1], 1)), kube.Options{})
		if want == "" && err == nil {
			k.Close()
		} else if err == nil || want == "" || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if _, err := Connect([]byte("{}"), kube.Options{}); err == nil {
		t.Error("an empty one is taken")
	}
}

func TestMetricsAreDeclared(t *testing.T) {
	NewMetrics(&metric.Catalogue{})
	r := prometheus.NewPedanticRegistry()
	m := NewMetrics(r)
	cfg := Config{Source: "x", Kinds: []Kind{{Resource: kube.TenantControlPlanes}}, Local: &kube.Client{}, Remote: &kube.Client{}, Log: slog.New(slog.DiscardHandler)}
	one := newMirror(cfg)
	defer one.queue.ShutDown()
	defer m.serve(one)()
	one.saw(remote, nil)
	one.index.is(item{0, types.NamespacedName{Namespace: "a", Name: "x"}}, Held)
	m.wrote("TenantControlPlane", "status")
	families, err := r.Gather()
	if err != nil || len(families) != 4 {
		t.Errorf("%v, %v", families, err)
	}
}
