package system

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"

	"github.com/coppice-dev/coppice/internal/agent"
	"github.com/coppice-dev/coppice/internal/agent/machine"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/core"
	"github.com/coppice-dev/coppice/internal/apiserver/storage"
	"github.com/coppice-dev/coppice/internal/apiserver/storageendpoints"
	"github.com/coppice-dev/coppice/internal/controller/nodelifecycle"
)

// SnapshotPath is the path at which a running control plane serves snapshots.
const SnapshotPath = storageendpoints.SnapshotPath

// Etcd is an etcd cluster to keep the objects in.
type Etcd = storage.Cluster

// DefaultOptions returns what the flags of coppice up are by default, as far as the parts of
// a control plane have defaults: they are those of the parts.
func DefaultOptions() Options {
	return Options{
		Etcd: Etcd{Prefix: storage.DefaultPrefix}, QuotaBytes: storage.DefaultQuota,
		Services:  core.DefaultServiceRanges(),
		Nodes:     machine.Options{Nodes: 1, Runtime: machine.Simulated},
		NodeGrace: nodelifecycle.DefaultGrace,
	}
}

// DefaultNodeOptions returns what the flags of coppice node are by default.
func DefaultNodeOptions() NodeOptions {
	return NodeOptions{Runtime: machine.Simulated, Bind: net.IPv4(127, 0, 0, 1), Lease: agent.DefaultLease}
}

// ServiceRanges returns the default ranges of services, with another range of addresses
// unless it is empty.
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

// CopySnapshot writes a snapshot that a control plane has served to a file.
func CopySnapshot(file string, from io.Reader) error {
	return WriteSnapshot(file, func(out *os.File) error { return storage.CopySnapshot(out, from) })
}
