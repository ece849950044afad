package faults

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
	"github.com/stoker-k8s/stoker/test/env"
)

// lateWrite is what a service writes in a turn by what it read before.
type lateWrite struct {
	service, what string
	// before is the request that it waits for before it writes, as general makes it.
	before string
	// created is true if the turn is for a tenant that was created; else it is for a change of one that is Ready.
	created bool
	// fenced is true if the metrics must show that the fence ended the turn.
	fenced bool
}

const (
	objectPath = "/apis/kamaji.clastix.io/v1alpha1/namespaces/default/tenantcontrolplanes/NAME"
	secretPath = "/api/v1/namespaces/default/secrets/NAME-"
	configPath = "/api/v1/namespaces/default/configmaps/NAME-kubeadmconfig"
)

var lateWrites = []lateWrite{
	{service: name.ServiceCerts, what: "a certificate", before: "GET " + secretPath + "ca", fenced: true},
	{service: name.ServiceWorkload, what: "the Deployment", before: "PATCH " + configPath, fenced: true},
	{service: name.ServiceIntake, what: "the spec", before: "GET " + objectPath},
	{service: name.ServiceDatastore, what: "the account", before: "GET " + secretPath + "datastore-config", created: true},
	{service: name.ServiceAddons, what: "what is inside the tenant", before: "GET " + secretPath + "admin-kubeconfig", created: true},
	{service: name.ServiceStatus, what: "the status", before: "GET " + objectPath},
}

// patient lets a request to the API server, and the turn it belongs to, outlast the takeover. With the default of 10 s, a stopped replica
// that continues later than that would find its request failed, begin the turn again, and have nothing outdated to write.
const patient = "STOKER_API_TIMEOUT=10m"

// replica is a process, and the tap on what it sends.
type replica struct {
	*env.Process
	tap *env.Tap
}

// TestStoppedReplicaWritesNothingWhenItGoesOn stops the replica that holds a tenant (SIGSTOP) in the middle of a turn, while it waits for
// an answer, and lets it go on when another has taken over and done the work for what is asked for meanwhile. The replica has its answer
// then, and would write by what it read before; only the fence keeps it from that.
func TestStoppedReplicaWritesNothingWhenItGoesOn(t *testing.T) {
	e.NoServices(t)
	replicas := map[string][2]replica{}
	e.Service(t, name.ServiceCAPI, "a") // which has nothing to write for these tenants, as neither has tenantaddons
	e.Service(t, name.ServiceTenantAddons, "a")
	for _, w := range lateWrites {
		var both [2]replica
		for i, n := range []string{"a", "b"} {
			both[i].Process, both[i].tap = e.Tapped(t, w.service, n, patient)
		}
		replicas[w.service] = both
	}
	t.Run("stopped", func(t *testing.T) { // replicas and taps end after it
		for _, w := range lateWrites {
			t.Run(fmt.Sprintf("%s before it writes %s", w.service, w.what), func(t *testing.T) {
				t.Parallel()
				w.isKept(t, events.Tenant("default", "stopped-"+w.service), replicas[w.service])
			})
		}
	})
}

// asks is a tenant of which something is asked for that each service has to do with; the later request has no kube-proxy.
func asks(key events.Key, what string) *v1alpha1.TenantControlPlane {
	o := env.Tenant(key.Name, "v1.36.3")
	asked := map[string]string{"asked": what}
	o.Spec.NetworkProfile.CertSANs = []string{what + ".example"}
	o.Spec.ControlPlane.Service.AdditionalMetadata.Labels = asked
	o.Spec.ControlPlane.Deployment.AdditionalMetadata.Labels = asked
	if strings.HasPrefix(what, late) {
		o.Spec.Addons.KubeProxy = nil
	}
	return o
}

const early, late = "early", "late"

// isKept stops a replica before its late write for a tenant, lets it continue when another replica has done the work, and fails the test
// if the first one then writes. The turn that is stopped may be one that an earlier message caused, and have nothing outdated to write: then
// the fence isn't shown, and all is done once more.
func (w lateWrite) isKept(t *testing.T, key events.Key, both [2]replica) {
	t.Helper()
	count := oneCA(t, key)
	generation := int64(2)
	if !w.created {
		generation++
		e.Apply(t, env.Tenant(key.Name, "v1.36.3"))
		e.Ready(t, key)
		quiet(t, key)
	}
	const tries = 3
	for try := 1; ; try++ {
		shown := w.goesOn(t, key, both, strconv.Itoa(try), generation)
		if shown || !w.fenced {
			break
		}
		if try == tries {
			t.Errorf("no turn ended at the fence in %d tries: the replica had nothing outdated to write, and nothing was shown", tries)
			break
		}
		t.Log("no turn ended at the fence: once more")
		e.Ready(t, key)
		quiet(t, key)
		generation += 2
	}
	e.Ready(t, key)
	if n := count(); n != 1 {
		t.Errorf("the CA was written %d times", n)
	}
	e.Delete(t, key)
	e.Gone(t, key)
}

// goesOn stops the replica that holds a tenant, and lets it go on after another replica did the work for the generation. It reports whether
// the fence ended a turn of the first one.
func (w lateWrite) goesOn(t *testing.T, key events.Key, both [2]replica, try string, generation int64) (fenced bool) {
	t.Helper()
	zombie, other := both[0], both[1]
	if p, _ := holders(t, key, zombie.Process, other.Process); p == other.Process {
		zombie, other = other, zombie
	}
	refused := fencedTurns(t, zombie.Process)
	stopped := zombie.tap.StopAt(zombie.Process, func(m env.Message) bool { return general(m.What, key) == w.before })
	defer zombie.tap.Clear()
	defer zombie.Signal(syscall.SIGCONT)
	e.Apply(t, asks(key, early+try))
	env.Eventually(t, w.before, func() error {
		select {
		case <-stopped:
			return nil
		default:
			return errNotYet
		}
	})
	since := time.Now()
	e.Apply(t, asks(key, late+try))
	env.Eventually(t, "another replica to do the work, as it is asked for now", func() error {
		if s := e.State(t.Context(), key, w.state()); s == nil || s.Generation < generation || other.Did(t, key, since).IsZero() {
			return fmt.Errorf("it holds the tenant: %v; state: %+v", other.Holds(t, key), s)
		}
		return nil
	})
	before := w.made(t, key)
	sent, heard := len(zombie.tap.Messages(0)), len(other.tap.Messages(0))
	zombie.Signal(syscall.SIGCONT)
	t.Logf("it went on after %.1f s", time.Since(since).Seconds())
	awaitBeats(t, w.service, zombie.tap, sent)
	awaitBeats(t, w.service, other.tap, heard)
	for _, m := range zombie.tap.Messages(sent) {
		if m.Claims(w.service, zombie.Replica, key.Partition()) {
			break // from now on it may
		}
		if m.Write && env.About(key.Name)(m) {
			t.Errorf("%s %s was stopped, and sent %s when the tenant was another's", w.service, zombie.Replica, m.What)
		}
	}
	if diff := before.diff(w.made(t, key)); diff != "" {
		t.Errorf("what %s has made changed:\n%s", w.service, diff)
	}
	return fencedTurns(t, zombie.Process) > refused
}

// state is the key of the service's state.
func (w lateWrite) state() string {
	if w.service == name.ServiceIntake {
		return events.KeySpec
	}
	return w.service
}

// made is what the service has made for a tenant, but for what others write to as well: each object by its version, or where others write
// the status by its generation and labels.
func (w lateWrite) made(t *testing.T, key events.Key) image {
	t.Helper()
	all := image{}
	for _, r := range []kube.Resource{kube.Secrets, kube.Services, kube.Deployments} {
		var list metav1.PartialObjectMetadataList
		e.List(t, r, key.Namespace, name.LabelName+"="+key.Name, &list)
		for _, o := range list.Items {
			if slices.ContainsFunc(o.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == "stoker-"+w.service }) {
				all[r.Plural+"/"+o.Name] = o.ResourceVersion
				if o.Generation > 0 {
					all[r.Plural+"/"+o.Name] = fmt.Sprintf("generation %d, %v", o.Generation, o.Labels)
				}
			}
		}
	}
	switch w.service {
	case name.ServiceIntake:
		var o v1alpha1.TenantControlPlane
		get(t, kube.TenantControlPlanes, key.Namespace, key.Name, &o)
		all["spec"] = fmt.Sprintf("generation %d, %v", o.Generation, o.Spec.NetworkProfile.CertSANs)
	case name.ServiceDatastore:
		account(t, key)
		maps.Copy(all, e.Stored(t, key))
	case name.ServiceAddons:
		inside, err := e.Inside(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(all, inside)
	}
	if len(all) == 0 && w.service != name.ServiceStatus {
		t.Fatalf("nothing of %s's", w.service)
	}
	return all
}

// fencedTurns is how many turns of a replica have ended because it may no longer write.
func fencedTurns(t *testing.T, p *env.Process) (n int) {
	t.Helper()
	text, err := p.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if count := fencedCount.FindStringSubmatch(text); count != nil {
		if n, err = strconv.Atoi(count[1]); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

var fencedCount = regexp.MustCompile(`(?m)^stoker_step_duration_seconds_count\{result="fenced",[^}]*\} (\d+)$`)

// awaitBeats waits until a replica has told twice that it lives: what one that goes on would do, it has done by then.
func awaitBeats(t *testing.T, service string, tap *env.Tap, from int) {
	t.Helper()
	env.Eventually(t, "signs of life", func() error {
		n := 0
		for _, m := range tap.Messages(from) {
			if m.Beat(service) {
				n++
			}
		}
		if n < 2 {
			return fmt.Errorf("%d so far", n)
		}
		return nil
	})
}
