package system

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/core"
	"github.com/coppice-dev/coppice/internal/controller/nodelifecycle"
	"github.com/coppice-dev/coppice/internal/node/agent"
	"github.com/coppice-dev/coppice/internal/node/agent/nodeconfig"
)

// SnapshotPath is the path at which a running control plane serves snapshots.
const SnapshotPath = apiserver.SnapshotPath

// Etcd is an etcd cluster that stores the objects.
type Etcd = etcd.Cluster

// DefaultOptions returns the defaults of the flags of coppice up, as far as the parts of a control plane
// define them.
func DefaultOptions() Options {
	return Options{
		Etcd: Etcd{Prefix: etcd.DefaultPrefix}, QuotaBytes: etcd.DefaultQuota,
		Services:  core.DefaultServiceRanges(),
		Nodes:     nodeconfig.Options{Nodes: 1, Runtime: nodeconfig.Simulated},
		NodeGrace: nodelifecycle.DefaultGrace,
	}
}

// DefaultNodeOptions returns the defaults of the flags of coppice node.
func DefaultNodeOptions() NodeOptions {
	return NodeOptions{Runtime: nodeconfig.Simulated, Bind: net.IPv4(127, 0, 0, 1), Lease: agent.DefaultLease}
}

// ServiceRanges returns the default ranges of services, with the given address range unless addresses is
// empty.
func ServiceRanges(addresses string) (core.ServiceRanges, error) {
	ranges := core.DefaultServiceRanges()
	if addresses == "" {
		return ranges, nil
	}
	prefix, err := netip.ParsePrefix(addresses)
	if err != nil || prefix != prefix.Masked() || prefix.Addr().BitLen()-prefix.Bits() < core.MinServiceBits {
		return ranges, fmt.Errorf("%q is not a range of at least 8 IP addresses, such as %s", addresses, ranges.Addresses)
	}
	ranges.Addresses = prefix
	return ranges, nil
}

// CopySnapshot writes a snapshot served by a control plane to a file.
func CopySnapshot(file string, from io.Reader) error {
	return WriteSnapshot(file, func(out *os.File) error { return etcd.CopySnapshot(out, from) })
}
