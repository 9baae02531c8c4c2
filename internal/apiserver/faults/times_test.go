package faults

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// TestControllersStopAndBeginAgain checks that controllers stop for the time of the plan, begin again, and end for good
// with their context, or by themselves.
func TestControllersStopAndBeginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		i := NewInjector(parsed(t, "controllers-late every=10s delay=3s"), Config{Clock: clock.RealClock{}})
		ctx, cancel := context.WithCancel(t.Context())
		var begins []time.Duration
		ended := make(chan error)
		work := func(ctx context.Context) error {
			begins = append(begins, time.Since(began))
			<-ctx.Done()
			return ctx.Err()
		}
		go func() { ended <- i.Controllers(ctx, work) }()
		time.Sleep(30 * time.Second)
		i.Set(Plan{})
		time.Sleep(time.Hour)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended: %v", err)
		}
		if len(begins) != 3 || begins[1] != 13*time.Second || begins[2] != 26*time.Second {
			t.Errorf("they began at %v", begins)
		}
		if all := i.journal.all(); len(all) != 2 || !strings.Contains(all[0].String(), "stopped for 3s") {
			t.Errorf("the journal has %v", all)
		}
		failed := errors.New("failed")
		if err := i.Controllers(t.Context(), func(context.Context) error { return failed }); !errors.Is(err, failed) {
			t.Errorf("controllers that fail: %v", err)
		}
	})
}

// TestConnectionsEndAtOnce checks that all connections end when the plan says so, and not those that come after.
func TestConnectionsEndAtOnce(t *testing.T) {
	connections := &Connections{}
	plain, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := connections.Listener(plain)
	defer listener.Close()
	connect := func() (client, server net.Conn) {
		t.Helper()
		client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", plain.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		server, err = listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return client, server
	}
	closed, own := connect()
	defer closed.Close()
	if err := own.Close(); err != nil {
		t.Error(err)
	}
	var open []net.Conn
	for range 3 {
		client, _ := connect()
		defer client.Close()
		open = append(open, client)
	}
	i := NewInjector(parsed(t, "connections-end every=1ms"), Config{Clock: clock.RealClock{}, Connections: connections})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		i.EndConnections(ctx)
	}()
	for _, client := range open {
		if n, err := client.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d bytes on a connection that has ended", n)
		}
	}
	i.Set(Plan{})
	cancel()
	<-ended
	if first := i.journal.all()[0].String(); first != "connections of clients ended: 3" {
		t.Error(first)
	}
	later, server := connect()
	defer later.Close()
	go func() { _, _ = server.Write([]byte("x")) }()
	if _, err := later.Read(make([]byte, 1)); err != nil {
		t.Errorf("a later connection: %v", err)
	}
}
