// Package limit says how long the drivers wait for a database.
package limit

import "time"

// How long a driver waits for a connection and for one request. Both bound how late a driver notices that a database is away. They are variables
// only for tests (see [Raise]).
var (
	Dial = 3 * time.Second
	Step = 5 * time.Second
)

// Raise multiplies the limits by four. Tests of drivers call it before they open one: on a machine that other tests keep busy, a healthy
// database can take longer than the limits.
func Raise() { Dial, Step = 4*Dial, 4*Step }
