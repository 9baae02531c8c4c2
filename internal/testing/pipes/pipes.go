// Package pipes connects a client and a server of a test in memory. Nothing is buffered between them, so a client that
// does not read stops the server at the first byte; in a testing/synctest bubble, deadlines of connections follow its
// clock.
package pipes

import (
	"context"
	"net"
	"sync"
)

// Listener is a net.Listener whose connections are made with Dial. It is safe for concurrent use.
type Listener struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

// Listen returns a listener without connections.
func Listen() *Listener {
	return &Listener{accepted: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Connections stay as they are.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (*Listener) Addr() net.Addr { return &net.TCPAddr{} }

// Dial makes a connection, whatever network and address; it is the DialContext of a transport. It waits until the server
// accepts it. The error is net.ErrClosed, or that of the context.
func (l *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	if err := l.Connect(ctx, server); err != nil {
		return nil, err
	}
	return client, nil
}

// Connect gives the server its end of a connection that the test has made. Its errors are those of Dial.
func (l *Listener) Connect(ctx context.Context, server net.Conn) error {
	select {
	case l.accepted <- server:
		return nil
	case <-l.closed:
		return net.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}
