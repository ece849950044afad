//go:build !race

package addons

const raceEnabled = false
