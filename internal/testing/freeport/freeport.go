// Package freeport finds ports for processes that a test starts, and for those that it stops and starts again: a port that
// the system chose for the first may belong to a connection by the time of the second.
package freeport

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Find returns a free TCP port of 127.0.0.1. It is below the system's ephemeral ports, so no connection can
// take it before the test uses it. A test that needs several at a time uses Several.
func Find(t testing.TB) string {
	t.Helper()
	return Several(t, 1)[0]
}

// Several returns n such ports, which differ.
func Several(t testing.TB, n int) []string {
	t.Helper()
	ports := make([]string, n)
	for i := range ports {
		l, port, err := listen(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // after the last one is drawn
		ports[i] = port
	}
	return ports
}

func listen(ctx context.Context) (l net.Listener, port string, err error) {
	const attempts = 100
	for range attempts {
		port = strconv.Itoa(15_000 + rand.IntN(17_000))
		var config net.ListenConfig
		if l, err = config.Listen(ctx, "tcp", "127.0.0.1:"+port); err == nil {
			return l, port, nil
		}
	}
	return nil, "", err
}
