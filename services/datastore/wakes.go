package datastore

// Kinds of wakes that a DataStore causes.
const (
	// wakeDataStore: a DataStore changed, or is back, or is to be looked at.
	wakeDataStore = "datastore"
	// wakeAccount: schema, user or grants in a database changed; Object is the DataStore, Version the account's fingerprint now.
	wakeAccount = "account"
	// wakeSize: a tenant, or a DataStore, holds notably more or less than was reported last.
	wakeSize = "size"
)
