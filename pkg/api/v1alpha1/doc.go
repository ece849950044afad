// Package v1alpha1 holds the API kinds of Stoker. They are Kamaji's, under Kamaji's group, version and JSON names, so
// that manifests, clients and the cluster API provider written for Kamaji work unchanged.
//
// All rules that concern one object alone (formats, exclusions, immutability, version steps) are markers on the types
// and end up as schema and CEL rules of the CustomResourceDefinitions in deployments/crds; those about the types of
// Kubernetes that the API embeds are added by pkg/api/internal/constrain. Package ruletest lists every rule, with objects that
// pass and fail. The package has no logic but [Default], which resolves what the schema cannot express.
//
// Struct fields whose zero value means "not set" are tagged omitzero: an object that was read and is applied again does
// not claim fields its writer never spoke of.
//
// +kubebuilder:object:generate=true
// +groupName=kamaji.clastix.io
package v1alpha1

//go:generate go run ../internal/constrain ../../../deployments/crds kamaji.clastix.io
