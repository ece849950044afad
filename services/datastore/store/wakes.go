package store

// Kinds of wakes that a DataStore causes.
const (
	// WakeDataStore: a DataStore changed, or is back, or is to be looked at.
	WakeDataStore = "datastore"
	// WakeAccount: schema, user or grants in a database changed; Object is the DataStore, Version the account's fingerprint now.
	WakeAccount = "account"
	// WakeSize: a tenant, or a DataStore, holds notably more or less than was reported last.
	WakeSize = "size"
)
