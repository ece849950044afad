package store

import (
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stoker-k8s/stoker/pkg/api/reason"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
	"github.com/stoker-k8s/stoker/services/datastore/driver"
)

// Readiness is whether a DataStore can be used, and why not, or what should be put right all the same.
type Readiness struct {
	Usable          bool
	Reason, Message string // of the condition Valid
}

// ReadinessOf is the readiness of a DataStore by what opening it and pinging its database came to.
func ReadinessOf(opened, pinged error) Readiness {
	var bad *driver.ConfigError
	var no *UnsupportedError
	var foreign *ForeignSecretError
	switch {
	case errors.As(opened, &no):
		return Readiness{false, reason.DriverNotSupported, no.Error()}
	case errors.As(opened, &foreign):
		return Readiness{false, reason.ForeignSecret, foreign.Error()}
	case errors.As(opened, &bad) && bad.Part == driver.PartBasicAuth:
		return Readiness{false, v1alpha1.DataStoreReasonBasicAuthFailed, bad.Error()}
	case errors.As(opened, &bad):
		return Readiness{false, v1alpha1.DataStoreReasonTLSConfigFailed, bad.Error()}
	case pinged != nil:
		return Readiness{false, reason.Unreachable, pinged.Error()}
	}
	return Readiness{true, v1alpha1.DataStoreReasonValid, "the DataStore answers and all references are valid"}
}

// IsIn reports whether the status of a DataStore says so already.
func (r Readiness) IsIn(object *v1alpha1.DataStore) bool {
	if object.Status.Ready != r.Usable || object.Status.ObservedGeneration != object.Generation {
		return false
	}
	return slices.ContainsFunc(object.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.DataStoreConditionValid && c.Reason == r.Reason
	})
}
