package faults

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// Connections are the connections of clients that a listener has accepted. The zero value is empty. It is safe for
// concurrent use.
type Connections struct {
	mu   sync.Mutex
	open map[*connection]bool // guarded by mu
}

// Listener returns a listener whose connections are counted in.
func (c *Connections) Listener(next net.Listener) net.Listener { return &listener{next, c} }

// end ends all connections, and returns how many there were.
func (c *Connections) end() int {
	c.mu.Lock()
	open := c.open
	c.open = nil
	c.mu.Unlock()
	for one := range open {
		_ = one.Conn.Close() // its server and its client notice
	}
	return len(open)
}

type listener struct {
	net.Listener
	connections *Connections
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	one := &connection{accepted, l.connections}
	l.connections.mu.Lock()
	defer l.connections.mu.Unlock()
	if l.connections.open == nil {
		l.connections.open = map[*connection]bool{}
	}
	l.connections.open[one] = true
	return one, nil
}

type connection struct {
	net.Conn
	in *Connections
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.in.mu.Lock()
	delete(c.in.open, c)
	c.in.mu.Unlock()
	return c.Conn.Close()
}

// EndConnections ends all connections as the plan says, until ctx ends.
func (i *Injector) EndConnections(ctx context.Context) {
	for {
		if _, due := i.due(ctx, ConnectionsEnd); !due {
			return
		}
		i.journal.add(Entry{Time: i.clock.Now(), Other: fmt.Sprintf("connections of clients ended: %d", i.connections.end())})
	}
}
