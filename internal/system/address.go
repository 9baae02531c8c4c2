package system

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/coppice-dev/coppice/internal/node/agent/nodeconfig"
)

// listen opens the port. It runs first, so that a port in use stops the start before anything has changed.
func listen(ctx context.Context, o completedOptions) (net.Listener, error) {
	return listenOn(ctx, o.BindAddress, o.Port, "--secure-port")
}

// listenOn opens a port. flag is the flag that sets it, for the error.
func listenOn(ctx context.Context, address net.IP, port int, flag string) (net.Listener, error) {
	hostPort := net.JoinHostPort(address.String(), strconv.Itoa(port))
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", hostPort)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err
		}
		return nil, fmt.Errorf("listen on %s: %w; choose another port with %s, 0 for a free one", hostPort, err, flag)
	}
	return listener, nil
}

// serverURL returns the URL with which clients reach the server.
func (o Options) serverURL(address net.Addr) string {
	host, port, err := net.SplitHostPort(address.String())
	if err != nil {
		return "https://" + address.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	if o.ExternalHost != "" {
		named, namedPort := splitHost(o.ExternalHost)
		host, port = named, cmp.Or(namedPort, port)
	}
	return "https://" + net.JoinHostPort(host, port)
}

// servingNames returns the names in the serving certificate besides the server's own.
func (r *resources) servingNames(o completedOptions) []string {
	var names []string
	if o.ExternalHost != "" {
		host, _ := splitHost(o.ExternalHost)
		names = append(names, host)
	}
	if o.AdvertiseAddress != nil {
		names = append(names, o.AdvertiseAddress.String())
	}
	if o.Nodes.Runtime == nodeconfig.CRI && r.machine != nil {
		for _, node := range r.machine.setup.Nodes { // pods reach the server there (package cri)
			names = append(names, node.Addresses...)
		}
	}
	return names
}

// splitHost splits off the port, if there is one.
func splitHost(hostPort string) (host, port string) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return strings.Trim(hostPort, "[]"), ""
	}
	return host, port
}
