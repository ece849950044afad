package datastore

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/state"
)

// All tests of the service check that a step changes only its parts of the state. TestMain fails if one did otherwise.
func init() {
	observe = func(s step, own *state.Datastore) func() {
		before := fieldsOf(*own)
		return func() {
			if changed := changedParts(before, fieldsOf(*own)); !isSubset(changed, s.parts) {
				violations.Store(fmt.Sprintf("step %q changes %v, its parts of the state are %v", s.name, changed, s.parts), nil)
			}
		}
	}
}

var violations sync.Map

// StepViolations are the steps that changed other parts of the state than their own.
func StepViolations() (all []string) {
	violations.Range(func(violation, _ any) bool {
		all = append(all, violation.(string))
		return true
	})
	return all
}

// fieldsOf are the fields of a state as they are now, by name.
func fieldsOf(own state.Datastore) map[string]string {
	fields := map[string]string{}
	for v, i := reflect.ValueOf(own), 0; i < v.NumField(); i++ {
		value, err := json.Marshal(v.Field(i).Interface())
		if err != nil {
			panic(err)
		}
		fields[v.Type().Field(i).Name] = string(value)
	}
	return fields
}

func changedParts(before, after map[string]string) (changed []string) {
	for field, value := range after {
		if before[field] != value {
			changed = append(changed, field)
		}
	}
	slices.Sort(changed)
	return changed
}

func isSubset(some, all []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

func TestStepsNameFieldsOfTheState(t *testing.T) {
	fields := fieldsOf(state.Datastore{})
	for _, s := range steps {
		for _, part := range s.parts {
			if _, ok := fields[part]; !ok {
				t.Errorf("step %q: the state has no field %s", s.name, part)
			}
		}
	}
}
