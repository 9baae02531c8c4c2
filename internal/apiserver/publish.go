package apiserver

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver/kubernetesservice"
)

// newPublisher returns the publisher that maintains the service default/kubernetes.
func newPublisher(ctx context.Context, c completedConfig, client kubernetes.Interface) (*kubernetesservice.Publisher, error) {
	listens, ok := c.Listener.Addr().(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("apiserver: Listener is on %s, not on TCP", c.Listener.Addr().Network())
	}
	port := listens.AddrPort().Port()
	announced := ""
	if address, ok := advertised(ctx, c, listens.IP); ok {
		announced = netip.AddrPortFrom(address, port).String()
	}
	return kubernetesservice.New(kubernetesservice.Config{
		Client: client, IP: c.Services.First(), Port: port, Clock: clock.RealClock{}, Log: c.Log,
		Presence: c.Store.Presence(kubernetesservice.Group, announced, kubernetesservice.TimeToLive),
	})
}

// advertised returns the address that the server announces in the cluster. It is no loopback address unless
// configured: on every other machine, loopback means that machine.
func advertised(ctx context.Context, c completedConfig, listens net.IP) (netip.Addr, bool) {
	ip := c.AdvertiseAddress
	if ip == nil {
		resolved, err := utilnet.ResolveBindAddress(listens)
		if err != nil {
			c.Log.InfoContext(ctx, "the service default/kubernetes gets no address of this server: it listens on loopback, and the machine has no other address", "error", err)
			return netip.Addr{}, false
		}
		ip = resolved
	}
	address, ok := netip.AddrFromSlice(ip)
	return address.Unmap(), ok
}
