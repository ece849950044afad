// Package robustness runs an installation under faults and proves from what it did that the design's invariants held.
//
// Portals and kubectl users order tenants (actor.go) from an installation of real processes (site.go): three NATS servers, two
// replicas of each service, an API server with its etcd, and a DataStore. Meanwhile faults strike at it (fault.go) by a schedule
// that follows from a seed (schedule.go), or is written down (directed.go). All that was asked, answered, written, told and broken goes
// into one history (history.go, audit.go); the checks (check.go) are functions of the history and of what is left when everything is
// healed (remains.go).
//
// Where there are hundreds of tenants (many.go), stand-ins (package standin) take the place of the programs in their pods, and
// what healthy tenants feel of others is measured (delay.go).
//
// A run prints its seed; the same seed gives the same schedule and the same actors.
package robustness
