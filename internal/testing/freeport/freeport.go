// Package freeport finds ports for processes that a test starts, and for those that it stops and starts again: a port that
// the system chose for the first may belong to a connection by the time of the second.
package freeport

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Find returns a free TCP port of 127.0.0.1. It is below the system's ephemeral ports, so no connection can
// take it before the test uses it.
func Find(t testing.TB) string {
	t.Helper()
	const attempts = 100
	var last error
	for range attempts {
		port := strconv.Itoa(15_000 + rand.IntN(17_000))
		var config net.ListenConfig
		l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:"+port)
		if err == nil {
			l.Close()
			return port
		}
		last = err
	}
	t.Fatal(last)
	return ""
}
