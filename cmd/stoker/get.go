package main

// stoker get: tenants as the management API shows them.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

func getCommand(a *app) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "get [NAME]",
		Short: "List tenants",
		Long:  "get lists the tenants of all namespaces, or of the one given by -n, or shows one.",
		Example: `  stoker get
  stoker get demo -o wide
  stoker get demo -o yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{"", "table", "wide", "json", "yaml", "name"}, output) {
				return usagef("-o %s: must be table, wide, json, yaml or name", output)
			}
			list := v1alpha1.TenantControlPlaneList{}
			if len(args) == 1 {
				key, err := a.tenant(args[0])
				if err != nil {
					return err
				}
				k, err := a.kube()
				if err != nil {
					return err
				}
				defer k.Close()
				o := v1alpha1.TenantControlPlane{}
				err = k.Get(cmd.Context(), kube.TenantControlPlanes, key.Namespace, key.Name, &o)
				if apierrors.IsNotFound(err) {
					return fmt.Errorf("there is no tenant %s; `stoker get` lists those there are", key)
				}
				if err != nil {
					return fmt.Errorf("tenant %s: %w", key, err)
				}
				list.Items = append(list.Items, o)
			} else {
				k, err := a.kube()
				if err != nil {
					return err
				}
				defer k.Close()
				if err := k.List(cmd.Context(), kube.TenantControlPlanes, a.namespace, "", &list); err != nil {
					return fmt.Errorf("tenants: %w", err)
				}
				if len(list.Items) == 0 && (output == "" || output == "table" || output == "wide") {
					a.sayf(a.err, "no tenants found; create one with `stoker apply -f FILE --wait`\n")
					return nil
				}
			}
			return show(a.out, list.Items, output, len(args) == 1, time.Now())
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "table, wide, json, yaml or name")
	return c
}

// show writes tenants in one of the formats; single writes one object instead of a list.
func show(w io.Writer, tenants []v1alpha1.TenantControlPlane, format string, single bool, now time.Time) error {
	for i := range tenants {
		tenants[i].TypeMeta = kube.TenantControlPlanes.TypeMeta()
		tenants[i].ManagedFields = nil
	}
	var what any = v1alpha1.TenantControlPlaneList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: tenants}
	if single {
		what = tenants[0]
	}
	switch format {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(what)
	case "yaml":
		data, err := yaml.Marshal(what)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	case "name":
		for _, t := range tenants {
			if _, err := fmt.Fprintln(w, "tenantcontrolplane/"+t.Name); err != nil {
				return err
			}
		}
		return nil
	}
	return table(w, tenants, format == "wide", now)
}

func table(w io.Writer, tenants []v1alpha1.TenantControlPlane, wide bool, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	row := func(cells []string) error {
		_, err := fmt.Fprintln(t, strings.Join(cells, "\t"))
		return err
	}
	head := []string{"NAMESPACE", "NAME", "READY", "VERSION", "STATUS", "DATASTORE", "ENDPOINT", "AGE"}
	if wide {
		head = append(head, "REASON", "REPLICAS", "MESSAGE")
	}
	if err := row(head); err != nil {
		return err
	}
	for _, o := range tenants {
		if err := row(cells(&o, wide, now)); err != nil {
			return err
		}
	}
	return t.Flush()
}

func cells(o *v1alpha1.TenantControlPlane, wide bool, now time.Time) []string {
	s := &o.Status
	ready := meta.FindStatusCondition(s.Conditions, "Ready")
	if ready == nil {
		ready = &metav1.Condition{Status: metav1.ConditionUnknown}
	}
	age := "<unknown>"
	if !o.CreationTimestamp.IsZero() {
		age = duration.HumanDuration(now.Sub(o.CreationTimestamp.Time))
	}
	c := []string{
		o.Namespace, o.Name, string(ready.Status), dash(cmp.Or(s.Kubernetes.Version.Version, o.Spec.Kubernetes.Version)), status(o, ready),
		dash(cmp.Or(s.Storage.DataStoreName, o.Spec.DataStore)), dash(s.ControlPlaneEndpoint), age,
	}
	if wide {
		replicas := "-"
		if d := s.Kubernetes.Deployment; d != nil {
			replicas = fmt.Sprintf("%d/%d", d.ReadyReplicas, d.Replicas)
		}
		c = append(c, dash(ready.Reason), replicas, dash(ready.Message))
	}
	return c
}

// status is the phase: Kamaji's word, unless the conditions know better.
func status(o *v1alpha1.TenantControlPlane, ready *metav1.Condition) string {
	is := func(condition string) bool { return meta.IsStatusConditionTrue(o.Status.Conditions, condition) }
	word := "Provisioning"
	if s := o.Status.Kubernetes.Version.Status; s != nil {
		word = string(*s)
	}
	switch {
	case is("Paused"):
		return "Paused"
	case !o.DeletionTimestamp.IsZero():
		return "Deleting"
	case is("Stalled"):
		return "Failed"
	case ready.Status == metav1.ConditionTrue && word == string(v1alpha1.VersionUnknown):
		return "Ready" // Kamaji's word for a rollout that is no upgrade; a pod answers
	case ready.Status != metav1.ConditionTrue && (word == string(v1alpha1.VersionReady) || word == string(v1alpha1.VersionUnknown)):
		return "Reconciling"
	}
	return word
}

func dash(s string) string { return cmp.Or(s, "-") }
