package main

// stoker get: tenants as the management API shows them.

import (
	"cmp"
	"context"
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

	"github.com/stoker-k8s/stoker/cmd/stoker/internal/printable"
	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

func getCommand(a *app) *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "get [NAME]",
		Short: "List tenants",
		Long:  "get lists the tenants of all namespaces, or of the one given by -n, or shows one.",
		Example: `  stoker get
  stoker get demo -o wide
  stoker get demo -o yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(format); err != nil {
				return err
			}
			read := a.all
			if len(args) == 1 {
				key, err := a.tenant(args[0])
				if err != nil {
					return err
				}
				read = func(ctx context.Context, k *kube.Client) ([]v1alpha1.TenantControlPlane, error) {
					return one(ctx, k, key)
				}
			}
			k, err := a.kube()
			if err != nil {
				return err
			}
			defer k.Close()
			tenants, err := read(cmd.Context(), k)
			if err != nil {
				return err
			}
			if len(tenants) == 0 && forPeople(format) {
				a.sayf(a.err, "no tenants found; create one with `stoker apply -f FILE --wait`\n")
				return nil
			}
			return show(a.out, tenants, format, len(args) == 1, time.Now())
		},
	}
	output(c, &format)
	return c
}

// one reads a tenant.
func one(ctx context.Context, k *kube.Client, key events.Key) ([]v1alpha1.TenantControlPlane, error) {
	o := v1alpha1.TenantControlPlane{}
	err := k.Get(ctx, kube.TenantControlPlanes, key.Namespace, key.Name, &o)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no tenant %s; `stoker get` lists those there are", key)
	}
	if err != nil {
		return nil, fmt.Errorf("tenant %s: %w", key, err)
	}
	return []v1alpha1.TenantControlPlane{o}, nil
}

// all lists the tenants of the namespace given by -n, or of all.
func (a *app) all(ctx context.Context, k *kube.Client) ([]v1alpha1.TenantControlPlane, error) {
	list := v1alpha1.TenantControlPlaneList{}
	if err := k.List(ctx, kube.TenantControlPlanes, a.namespace, "", &list); err != nil {
		return nil, fmt.Errorf("tenants: %w", err)
	}
	return list.Items, nil
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
	names := make([]string, 0, len(tenants))
	for _, t := range tenants {
		names = append(names, "tenantcontrolplane/"+t.Name)
	}
	return write(w, format, what, names, func(wide bool) [][]string {
		head := []string{"NAMESPACE", "NAME", "READY", "VERSION", "STATUS", "DATASTORE", "ENDPOINT", "AGE"}
		if wide {
			head = append(head, "REASON", "REPLICAS", "MESSAGE")
		}
		rows := [][]string{head}
		for _, o := range tenants {
			rows = append(rows, cells(&o, wide, now))
		}
		return rows
	})
}

// formats are the values of -o.
var formats = []string{"table", "wide", "json", "yaml", "name"}

// output declares -o.
func output(c *cobra.Command, format *string) {
	c.Flags().StringVarP(format, "output", "o", "", "table, wide, json, yaml or name")
}

// checkOutput refuses a -o that is no format.
func checkOutput(format string) error {
	if format != "" && !slices.Contains(formats, format) {
		return usagef("-o %s: must be table, wide, json, yaml or name", format)
	}
	return nil
}

// forPeople reports whether a format is read by a person.
func forPeople(format string) bool { return format == "" || format == "table" || format == "wide" }

// write writes in one of the formats: what for programs, its names, or a table, whose first row is the head.
func write(w io.Writer, format string, what any, names []string, rows func(wide bool) [][]string) error {
	switch format {
	case "json", "yaml":
		data, err := json.MarshalIndent(what, "", "  ")
		if err != nil {
			return err
		}
		text := printable.JSON(string(data)) + "\n"
		if format == "yaml" {
			if data, err = yaml.JSONToYAML([]byte(text)); err != nil {
				return err
			}
			text = printable.Text(string(data))
		}
		_, err = io.WriteString(w, text)
		return err
	case "name":
		for _, n := range names {
			if _, err := fmt.Fprintln(w, printable.Line(n)); err != nil {
				return err
			}
		}
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, cells := range rows(format == "wide") {
		for i := range cells {
			cells[i] = printable.Line(cells[i])
		}
		if _, err := fmt.Fprintln(t, strings.Join(cells, "\t")); err != nil {
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
	c := []string{
		o.Namespace, o.Name, string(ready.Status), dash(cmp.Or(s.Kubernetes.Version.Version, o.Spec.Kubernetes.Version)), status(o, ready),
		dash(cmp.Or(s.Storage.DataStoreName, o.Spec.DataStore)), dash(s.ControlPlaneEndpoint), age(o, now),
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
	case v1alpha1.MadeByKamaji(o):
		return reason.NotAdopted
	case is("Paused"):
		return "Paused"
	case !o.DeletionTimestamp.IsZero():
		return "Deleting"
	case is("Stalled"):
		return "Failed"
	case ready.Status == metav1.ConditionTrue && word == string(v1alpha1.VersionUnknown):
		return "Ready" // Kamaji's word for a rollout that is no upgrade; a pod answers
	case ready.Status != metav1.ConditionTrue &&
		(word == string(v1alpha1.VersionReady) || word == string(v1alpha1.VersionUnknown) || word == string(v1alpha1.VersionWriteLimited)):
		return "Reconciling"
	}
	return word
}

// age of an object, as kubectl writes it.
func age(o metav1.Object, now time.Time) string {
	made := o.GetCreationTimestamp()
	if made.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(made.Time))
}

func dash(s string) string { return cmp.Or(s, "-") }
