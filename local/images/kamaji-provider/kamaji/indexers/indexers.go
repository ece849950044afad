// Package indexers says what an index of objects is.
package indexers

import "sigs.k8s.io/controller-runtime/pkg/client"

// Indexer is an index of one kind of object by one made up field.
type Indexer interface {
	Object() client.Object
	Field() string
	ExtractValue() client.IndexerFunc
}
