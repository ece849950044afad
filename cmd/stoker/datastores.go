package main

// stoker datastores: where tenants' data is, as the management API shows it.

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/pkg/kube"
)

func dataStoresCommand(a *app) *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:     "datastores [NAME]",
		Aliases: []string{"datastore", "ds"},
		Short:   "List DataStores",
		Long: `datastores lists the databases that hold tenants' data, or shows one: whether it can be used, by how many it is,
how much they hold, and how fast it answers. What they hold is asked of it every five minutes and written when it changed by a tenth.`,
		Example: `  stoker datastores
  stoker datastores etcd-1 -o wide
  stoker datastores etcd-1 -o yaml

  # What DataStores keep that is no tenant's any more
  stoker datastores orphans`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(format); err != nil {
				return err
			}
			k, err := a.kube()
			if err != nil {
				return err
			}
			defer k.Close()
			list := v1alpha1.DataStoreList{}
			if len(args) == 1 {
				o := v1alpha1.DataStore{}
				err := k.Get(cmd.Context(), kube.DataStores, "", args[0], &o)
				if apierrors.IsNotFound(err) {
					return fmt.Errorf("there is no DataStore %s; `stoker datastores` lists those there are", args[0])
				}
				if err != nil {
					return fmt.Errorf("DataStore %s: %w", args[0], err)
				}
				list.Items = append(list.Items, o)
			} else if err := k.List(cmd.Context(), kube.DataStores, "", "", &list); err != nil {
				return fmt.Errorf("DataStores: %w", err)
			}
			if len(list.Items) == 0 && forPeople(format) {
				a.sayf(a.err, "no DataStores found; create one with `stoker apply -f FILE`\n")
				return nil
			}
			return showDataStores(a.out, list.Items, format, len(args) == 1, time.Now())
		},
	}
	output(c, &format)
	c.AddCommand(orphansCommand(a))
	return c
}

// showDataStores writes DataStores in one of the formats; single writes one object instead of a list.
func showDataStores(w io.Writer, all []v1alpha1.DataStore, format string, single bool, now time.Time) error {
	names := make([]string, 0, len(all))
	for i := range all {
		all[i].TypeMeta = kube.DataStores.TypeMeta()
		all[i].ManagedFields = nil
		names = append(names, "datastore/"+all[i].Name)
	}
	var what any = v1alpha1.DataStoreList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: all}
	if single {
		what = all[0]
	}
	return write(w, format, what, names, func(wide bool) [][]string {
		head := []string{"NAME", "DRIVER", "READY", "TENANTS", "BYTES", "LATENCY", "AGE"}
		if wide {
			head = append(head, "KEYS", "LIMITS", "ENDPOINTS", "REASON")
		}
		rows := [][]string{head}
		for i := range all {
			o := &all[i]
			bytes, keys, latency := usage(o)
			cells := []string{o.Name, string(o.Spec.Driver), truth(o.Status.Ready), strconv.Itoa(len(o.Status.UsedBy)), bytes, latency, age(o, now)}
			if wide {
				cells = append(cells, keys, dash(limits(o)), strings.Join(o.Spec.Endpoints, ","), dash(strings.Join(standing(o), ",")))
			}
			rows = append(rows, cells)
		}
		return rows
	})
}

// usage of a DataStore in words, as far as it was measured.
func usage(o *v1alpha1.DataStore) (bytes, keys, latency string) {
	u := o.Status.Usage
	if u == nil {
		return "-", "-", "-"
	}
	latency = "-"
	if u.LatencyMilliseconds > 0 {
		latency = fmt.Sprintf("%d ms", u.LatencyMilliseconds)
	}
	return name.Bytes(u.Bytes), strconv.FormatInt(u.Keys, 10), latency
}

// limits of a DataStore, as its annotations say them.
func limits(o *v1alpha1.DataStore) string {
	var l []string
	if n, ok := o.Annotations[name.AnnotationMaxTenants]; ok {
		l = append(l, n+" tenants")
	}
	if n, ok := o.Annotations[name.AnnotationMaxBytes]; ok {
		l = append(l, n)
	}
	return strings.Join(l, ", ")
}

// standing says why a DataStore gets no tenants, or is about to go.
func standing(o *v1alpha1.DataStore) []string {
	var why []string
	valid := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.DataStoreConditionValid)
	switch {
	case valid == nil:
		why = append(why, v1alpha1.DataStoreReasonMissingCondition)
	case valid.Reason != v1alpha1.DataStoreReasonValid: // also of one that can be used, and should be put right all the same
		why = append(why, valid.Reason)
	}
	if meta.IsStatusConditionTrue(o.Status.Conditions, "Paused") {
		why = append(why, "Paused")
	}
	if o.DeletionTimestamp != nil {
		why = append(why, "Deleting")
	}
	return why
}

// truth is a boolean as conditions write it.
func truth(b bool) string {
	if b {
		return string(metav1.ConditionTrue)
	}
	return string(metav1.ConditionFalse)
}
