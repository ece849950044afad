package rules

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/stoker-k8s/stoker/pkg/api/state"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/testing/ruletest"
	"github.com/stoker-k8s/stoker/services/workload"
	"github.com/stoker-k8s/stoker/test/random"
)

// drawn is how many specs there are; STOKER_TEST_OBJECTS says otherwise.
const drawn = 1000

// TestWhatIsAcceptedCanBeMade draws specs at random, in particular what ends up in the pods, lets the rules judge them, and
// has the API server check the Deployment, Service and Ingress of each that is accepted: all of them are valid.
func TestWhatIsAcceptedCanBeMade(t *testing.T) {
	n := drawn
	if s := os.Getenv("STOKER_TEST_OBJECTS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	seed := random.Seed(t)
	definition := tenantSchema(t)
	cfg, _ := admin(t)
	judge, maker := asAuthor(t), dynamic.NewForConfigOrDie(cfg)
	jobs := make(chan int)
	var wg sync.WaitGroup
	var accepted atomic.Int64
	pods := definition.at("spec", "controlPlane", "deployment")
	fields, seen, mu := pods.fields(nil), map[string]bool{}, sync.Mutex{}
	started := time.Now()
	for range 8 {
		wg.Go(func() {
			for i := range jobs {
				seed := seed
				if i%10 == 0 { // the same in each run
					seed = random.Fixed
				}
				source := rand.New(rand.NewPCG(seed, uint64(i)))
				o := spec(source, definition, fields[i%len(fields)])
				o["metadata"].(map[string]any)["name"] = fmt.Sprintf("drawn-%d", i)
				stored, err := resource(judge, v1alpha1.TenantControlPlaneKind).Create(t.Context(), &unstructured.Unstructured{Object: o},
					metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
					continue
				}
				if err != nil {
					t.Error(err)
					continue
				}
				accepted.Add(1)
				part, _, _ := unstructured.NestedMap(stored.Object, "spec", "controlPlane", "deployment")
				mu.Lock()
				pods.seen(part, "", seen)
				mu.Unlock()
				if err := makeable(t.Context(), source, maker, stored); err != nil {
					data, _ := json.Marshal(o["spec"])
					t.Errorf("accepted, but %v\n%s", err, data)
				}
			}
		})
	}
	for i := range n {
		jobs <- i
	}
	close(jobs)
	wg.Wait()
	t.Logf("%d of %d accepted, with %d of the %d fields of the pods, in %.1f s", accepted.Load(), n, len(seen), len(fields), time.Since(started).Seconds())
	if os.Getenv("STOKER_TEST_SHOW") != "" {
		for _, f := range fields {
			if path := strings.Join(append([]string{""}, f...), "."); !seen[path] {
				t.Log("never:", path)
			}
		}
	}
	if accepted.Load() < int64(n/20) {
		t.Errorf("only %d of %d specs were accepted: hardly anything was tried", accepted.Load(), n)
	}
}

// spec is a tenant with some parts drawn from their schemas, in every other one with a field that is wanted.
func spec(r *rand.Rand, definition *shape, want []string) map[string]any {
	o := ruletest.Object(v1alpha1.TenantControlPlaneKind, `
spec:
  controlPlane:
    deployment:
      additionalVolumes: [{name: a, emptyDir: {}}, {name: b, persistentVolumeClaim: {claimName: b}}, {name: c, configMap: {name: c}}]
`)
	deployment := o["spec"].(map[string]any)["controlPlane"].(map[string]any)["deployment"].(map[string]any)
	s := definition.at("spec", "controlPlane", "deployment")
	parts := make([]string, 0, len(s.Properties))
	for k := range s.Properties {
		parts = append(parts, k)
	}
	slices.Sort(parts)
	often := []float64{0, 0, 0.05, 0.2}[r.IntN(4)]
	if len(want) > 0 && r.IntN(2) == 0 {
		parts, often, want = want[:1], 0, want[1:]
	} else {
		want = nil
	}
	for range 1 + r.IntN(min(3, len(parts))) {
		k := parts[r.IntN(len(parts))]
		if want == nil && r.IntN(2) == 0 { // where there is most to go wrong
			k = []string{"additionalContainers", "additionalInitContainers", "additionalVolumes", "additionalVolumeMounts", "affinity"}[r.IntN(5)]
		}
		v, ok := s.Properties[k].draw(r, often, want)
		if !ok {
			continue
		}
		if some, ok := v.([]any); ok && k == "additionalInitContainers" && r.IntN(2) == 0 {
			for _, x := range some {
				x.(map[string]any)["restartPolicy"] = "Always" // others can't have most of what containers can
			}
		}
		if more, ok := v.([]any); ok && k == "additionalVolumes" {
			for i, x := range more {
				if r.IntN(8) > 0 {
					x.(map[string]any)["name"] = fmt.Sprintf("v%d", i)
				}
			}
			v = append(deployment[k].([]any), more...)
		}
		deployment[k] = v
	}
	if r.IntN(4) == 0 {
		for _, k := range []string{"service", "ingress"} {
			if v, ok := definition.at("spec", "controlPlane", k).draw(r, 0.5, nil); ok {
				o["spec"].(map[string]any)["controlPlane"].(map[string]any)[k] = v
			}
		}
		if v, ok := definition.at("spec", "networkProfile").draw(r, 0.2, nil); ok {
			o["spec"].(map[string]any)["networkProfile"] = v
		}
	}
	return o
}

// makeable has the API server check what workload would make of an accepted tenant.
func makeable(ctx context.Context, r *rand.Rand, d dynamic.Interface, stored *unstructured.Unstructured) error {
	var tcp v1alpha1.TenantControlPlane
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, &tcp); err != nil {
		return err
	}
	tcp.UID = "5e1b8c1e-7f3a-4f57-9d38-0d3f8e0b7a11"
	v1alpha1.Default(&tcp)
	subject := workload.Subject{UID: string(tcp.UID), Tenant: &state.Tenant{Namespace: tcp.Namespace, Name: tcp.Name, Spec: tcp.Spec}}
	driver := v1alpha1.DriverEtcd
	if r.IntN(2) == 0 {
		driver = v1alpha1.DriverPostgreSQL // with kine in the pods
	}
	objects := map[string]any{
		"deployments": workload.Deployment(workload.Input{
			Subject: subject, Advertise: "192.0.2.1",
			Datastore: state.Datastore{DataStore: "a", Driver: string(driver), Schema: "a", Endpoints: []string{"a:1"}},
		}),
	}
	// Which node ports there are is a flag of the API server.
	if spec := tcp.Spec.ControlPlane.Service; spec.ServiceType != v1alpha1.ServiceTypeNodePort {
		objects["services"] = workload.Service(subject)
	}
	if ingress := workload.Ingress(subject); ingress != nil {
		objects["ingresses"] = ingress
	}
	groups := map[string]string{"deployments": "apps", "ingresses": "networking.k8s.io"}
	for plural, object := range objects {
		data, err := json.Marshal(object)
		if err != nil {
			return err
		}
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal(data, &u.Object); err != nil {
			return err
		}
		of := d.Resource(schema.GroupVersionResource{Group: groups[plural], Version: "v1", Resource: plural}).Namespace(tcp.Namespace)
		if _, err := of.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: "stoker-workload", Force: true, DryRun: []string{metav1.DryRunAll}}); err != nil {
			return fmt.Errorf("%s: %w", plural, err)
		}
	}
	return nil
}
