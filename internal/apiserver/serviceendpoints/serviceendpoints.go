// Package serviceendpoints reaches the servers that API objects name, most of them by a Service, whose endpoints it
// finds: aggregated API servers, admission webhooks, and the webhooks that convert custom resources (webhooks.go).
//
// Any user with write access to Services and EndpointSlices controls where these requests go. Therefore the
// clients of this package verify the server's certificate, and Dialer does not connect to link-local
// addresses, which machines use for services of their own. Validation keeps loopback addresses out of
// EndpointSlices; an ExternalName may be localhost.
package serviceendpoints

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Lookup reads the objects for Addresses. Service and Node return nil if the object does not exist.
type Lookup struct {
	Service        func(ctx context.Context, namespace, name string) (*corev1.Service, error)
	EndpointSlices func(ctx context.Context, namespace, service string) ([]*discoveryv1.EndpointSlice, error)
	Node           func(ctx context.Context, name string) (*corev1.Node, error)
}

// Resolver resolves Services to addresses.
type Resolver struct{ lookup func() (Lookup, bool) }

// NewResolver returns a Resolver. lookup returns false until the server's own API is installed.
func NewResolver(lookup func() (Lookup, bool)) *Resolver { return &Resolver{lookup} }

// Addresses returns the addresses, HOST:PORT, of the endpoints that serve a port of a Service. It returns at least
// one address, or an *Unreachable error.
func (r *Resolver) Addresses(ctx context.Context, ref Reference) ([]string, error) {
	lookup, ok := r.lookup()
	failed := func(err error) error {
		return fmt.Errorf("service/%s in %q cannot be checked due to: %w", ref.Name, ref.Namespace, err)
	}
	if !ok {
		return nil, failed(errors.New("the API server is still starting"))
	}
	ctx = withoutValues{ctx} //nolint:contextcheck // it ends with that of the request
	service, err := lookup.Service(ctx, ref.Namespace, ref.Name)
	if err != nil {
		return nil, failed(err)
	}
	slicesOf, err := lookup.EndpointSlices(ctx, ref.Namespace, ref.Name)
	if err != nil {
		return nil, failed(err)
	}
	found, err := resolve(ref, service, slicesOf)
	if err != nil {
		return nil, err
	}
	var unread error
	found, err = withProcesses(ref, found, func(name string) bool {
		node, err := lookup.Node(ctx, name)
		if err != nil {
			unread = err
		}
		return node != nil && strings.HasPrefix(node.Status.NodeInfo.ContainerRuntimeVersion, "simulated:")
	})
	if unread != nil {
		return nil, failed(unread)
	}
	if err != nil {
		return nil, err
	}
	addresses := make([]string, len(found))
	for i, e := range found {
		addresses[i] = net.JoinHostPort(e.host, strconv.Itoa(int(e.port)))
	}
	return addresses, nil
}

// withoutValues is a context without the values of its parent, but with its end. The values of a request,
// for example that its client wants metadata only, do not apply to reads that it causes.
type withoutValues struct{ context.Context } //nolint:containedctx // it is one

// Value implements context.Context.
func (withoutValues) Value(any) any { return nil }

const (
	dialTimeout = 5 * time.Second
	// keepAlive is the interval between two probes on an idle connection.
	keepAlive = 30 * time.Second
)

// Dialer connects to addresses of Services.
func Dialer() *net.Dialer {
	return &net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive, Control: func(_, address string, _ syscall.RawConn) error { return allowed(address) }}
}

// allowed returns an error for an address, HOST:PORT, that no server in a cluster has.
func allowed(address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	if ip := to.Addr().Unmap(); ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() {
		return fmt.Errorf("the API server connects to no link-local, multicast or unspecified address: use another address than %s", ip)
	}
	return nil
}
