//go:build race

package simulation

// underRace: the race detector makes everything some ten times slower, and finds
// little here, as nothing runs at the same time as anything else.
const underRace = true
