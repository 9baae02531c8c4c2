// Package nodeconfig selects the container runtime of an agent and describes its nodes: any number
// of simulated nodes, or a single node that represents this machine.
package nodeconfig

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/node/agent"
	"github.com/coppice-dev/coppice/internal/node/agent/containerruntime/cri"
	"github.com/coppice-dev/coppice/internal/node/agent/containerruntime/simulated"
)

// The available runtimes.
const (
	Simulated = "simulated"
	CRI       = "cri"
)

// MostNodes is the largest tested number of simulated nodes in one process.
const MostNodes = 5000

// Options configure the nodes and their runtime.
type Options struct {
	// Runtime is Simulated or CRI. Default: Simulated.
	Runtime string
	// Socket is the CRI endpoint: unix:///run/containerd/containerd.sock.
	Socket string
	// Nodes is the number of simulated nodes; at most one with CRI.
	Nodes int
	// Name is the name of a single node. Default: the machine's name, or node-1, node-2, … for
	// simulated nodes.
	Name string
	// Address is the address of a single node with a Name. Default: the machine's address.
	Address string
	// Dir is the directory for logs and volumes of pods with CRI. Only root may read it.
	Dir string
	// Version is the Kubernetes version that the nodes report.
	Version string
	// Objects reads the ConfigMaps and Secrets that pods refer to; nil if they cannot be read.
	Objects cri.Objects
	// Clock is the clock of simulated nodes. Default: the system's.
	Clock clock.Clock
	Log   *slog.Logger
}

// Validate returns an error if the options contradict each other. flag is the name of the flag that
// sets Runtime, for the error.
func (o Options) Validate(flag string) error {
	switch {
	case o.Runtime != "" && o.Runtime != Simulated && o.Runtime != CRI:
		return fmt.Errorf("%s %s: choose %s or %s", flag, o.Runtime, Simulated, CRI)
	case o.Nodes < 0 || o.Nodes > MostNodes:
		return fmt.Errorf("--nodes %d is not between 0 and %d", o.Nodes, MostNodes)
	case o.Runtime == CRI && o.Nodes > 1:
		return fmt.Errorf("--nodes %d: with %s=cri there is one node, this machine", o.Nodes, flag)
	case o.Runtime == CRI && o.Nodes == 1 && o.Socket == "":
		return fmt.Errorf("%s=cri needs --cri-socket, the endpoint of containerd or of another runtime, such as unix:///run/containerd/containerd.sock", flag)
	case o.Runtime != CRI && o.Socket != "":
		return fmt.Errorf("--cri-socket can be used with %s=cri only", flag)
	}
	return nil
}

// Setup is an agent's runtime and its nodes.
type Setup struct {
	Runtime agent.Runtime
	Nodes   []agent.Node

	clear func(context.Context) error // nil if nothing outlives the process
}

// Open connects to the runtime and describes the nodes. With CRI it fails if no runtime serves the
// socket.
func Open(ctx context.Context, o Options) (*Setup, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	switch {
	case o.Runtime != CRI && o.Name != "":
		return &Setup{
			Runtime: simulated.ForNode(o.Clock, o.Name), Nodes: []agent.Node{simulatedNode(o.Name, o.Address, o.Version)},
		}, nil
	case o.Runtime != CRI:
		return &Setup{Runtime: simulated.New(o.Clock), Nodes: simulatedNodes(o)}, nil
	}
	node, err := thisMachine(o)
	if err != nil {
		return nil, err
	}
	containers, err := cri.Connect(ctx, cri.Config{
		Socket: o.Socket, Dir: o.Dir, HostIPs: node.Addresses, Capacity: node.Capacity, Objects: o.Objects, Logger: o.Log,
	})
	if err != nil {
		return nil, err
	}
	node.Info.ContainerRuntimeVersion, node.Features = containers.Name()+"://"+containers.Version(), containers.Features()
	return &Setup{Runtime: containers, Nodes: []agent.Node{node}, clear: containers.Clear}, nil
}

// Clear kills and removes all containers. It is for agents that will not be started again.
func (s *Setup) Clear(ctx context.Context) error {
	if s.clear == nil {
		return nil
	}
	return s.clear(ctx)
}

// The capacity of a simulated node: enough for the usual number of pods with usual requests.
const (
	simulatedCPU    = "32"
	simulatedMemory = "256Gi"
	simulatedDisk   = "1Ti"
	mostPods        = "110"
)

// Names returns the names of the simulated nodes, or nil with CRI.
func (o Options) Names() []string {
	var names []string
	for i := range o.Nodes {
		if o.Runtime != CRI {
			names = append(names, "node-"+strconv.Itoa(i+1))
		}
	}
	return names
}

// simulatedNodes returns Options.Nodes nodes. Their names and addresses are the same in each run.
func simulatedNodes(o Options) []agent.Node {
	nodes := make([]agent.Node, 0, o.Nodes)
	for i, name := range o.Names() {
		nodes = append(nodes, simulatedNode(name, fmt.Sprintf("10.%d.%d.%d", 64+(i+1)>>16&63, (i+1)>>8&255, (i+1)&255), o.Version))
	}
	return nodes
}

func simulatedNode(name, address, version string) agent.Node {
	info := corev1.NodeSystemInfo{
		OperatingSystem: "linux", Architecture: runtime.GOARCH, OSImage: "simulated", KernelVersion: "simulated",
		ContainerRuntimeVersion: "simulated://1", KubeletVersion: version,
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(simulatedCPU), corev1.ResourceMemory: resource.MustParse(simulatedMemory),
		corev1.ResourceEphemeralStorage: resource.MustParse(simulatedDisk), corev1.ResourcePods: resource.MustParse(mostPods),
	}
	// No process runs on a simulated node, so no process has groups other than the pod's.
	features := &corev1.NodeFeatures{SupplementalGroupsPolicy: new(true)}
	return agent.Node{Name: name, Capacity: capacity, Info: info, Addresses: []string{address}, Features: features}
}
