package event

import "time"

// QueryMove is the subject of the question what a move of a tenant's data to another DataStore would meet, which the datastore service
// answers.
const QueryMove = "stoker.datastore.move"

// MoveQuery asks what a move of a tenant's data to a DataStore would meet. Nothing is changed, and nothing is written to a database.
type MoveQuery struct {
	Query
	// DataStore that the data would go to; empty to hear just where they are.
	DataStore string `json:"dataStore,omitempty"`
}

// MoveReply answers QueryMove.
type MoveReply struct {
	// About the tenant as it was looked at.
	About
	// From is the DataStore that the data are in, To the one that they would go to; the drivers are their kinds. What isn't known is absent.
	From       string `json:"from,omitempty"`
	FromDriver string `json:"fromDriver,omitempty"`
	To         string `json:"to,omitempty"`
	ToDriver   string `json:"toDriver,omitempty"`
	// Asked is the DataStore that the tenant is to have its data in by its spec. Moving is the one that they are on the way to, and Stage how far
	// they are ("Copying"); absent while they don't move.
	Asked  string `json:"asked,omitempty"`
	Moving string `json:"moving,omitempty"`
	Stage  string `json:"stage,omitempty"`
	// Keys and Bytes that the tenant held at MeasuredAt (UTC), by the database's own statistics; absent before the first measurement.
	Keys       int64     `json:"keys,omitempty"`
	Bytes      int64     `json:"bytes,omitempty"`
	MeasuredAt time.Time `json:"measuredAt,omitzero"`
	// CopySeconds is a rough estimate of how long so many keys are copied for; absent where it isn't known how many there are.
	CopySeconds int64 `json:"copySeconds,omitempty"`
	// Blocked is true when a finding blocks.
	Blocked bool `json:"blocked"`
	// Findings are what the move would meet, those that block first; more kinds of them may come.
	Findings []MoveFinding `json:"findings"`
}

// MoveFinding is something that a move would meet.
type MoveFinding struct {
	// What is one of pkg/api/reason.
	What string `json:"what"`
	// Message for people, one line.
	Message string `json:"message"`
	// Blocks says that the data don't move as long as it is so.
	Blocks bool `json:"blocks"`
}
