// Package machine chooses what runs the containers of an agent's nodes, and says what
// these nodes are: any number of simulated ones, or the one that is this machine.
package machine

import (
	"context"
	"fmt"
	"log/slog"
	goruntime "runtime"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/agent"
	"github.com/coppice-dev/coppice/internal/agent/containerruntime"
	"github.com/coppice-dev/coppice/internal/agent/containerruntime/cri"
	"github.com/coppice-dev/coppice/internal/agent/containerruntime/simulated"
)

// Runtimes to choose from.
const (
	Simulated = "simulated"
	CRI       = "cri"
)

// MostNodes is how many simulated nodes one process is tried with.
const MostNodes = 5000

// Options say which nodes there are, and what runs on them.
type Options struct {
	// Runtime is Simulated or CRI; Simulated if empty.
	Runtime string
	// Socket is where the CRI is served: unix:///run/containerd/containerd.sock.
	Socket string
	// Nodes is how many simulated nodes there are; with CRI there is one at most.
	Nodes int
	// Name of the one node; that of the machine, or of simulated ones node-1, node-2, … if empty.
	Name string
	// Address of the one node, if it is named; that of the machine if empty.
	Address string
	// Dir is where an agent with CRI keeps logs and volumes of pods. Nobody else may read it.
	Dir string
	// Version is the Kubernetes version that the nodes report.
	Version string
	// Objects reads what pods refer to; nil if that cannot be read.
	Objects cri.Objects
	Log     *slog.Logger
}

// Validate tells what is wrong with the choice. It is made by a flag of that name.
func (o Options) Validate(flag string) error {
	switch {
	case o.Runtime != "" && o.Runtime != Simulated && o.Runtime != CRI:
		return fmt.Errorf("%s %s: choose %s or %s", flag, o.Runtime, Simulated, CRI)
	case o.Nodes < 0 || o.Nodes > MostNodes:
		return fmt.Errorf("--nodes %d is not between 0 and %d", o.Nodes, MostNodes)
	case o.Runtime == CRI && o.Nodes > 1:
		return fmt.Errorf("--nodes %d: with %s=cri there is one node, this machine", o.Nodes, flag)
	case o.Runtime == CRI && o.Nodes == 1 && o.Socket == "":
		return fmt.Errorf("%s=cri needs --cri-socket: where containerd or another runtime serves, such as unix:///run/containerd/containerd.sock", flag)
	case o.Runtime != CRI && o.Socket != "":
		return fmt.Errorf("--cri-socket is about %s=cri, which is not given", flag)
	}
	return nil
}

// Machine is what an agent stands for.
type Machine struct {
	Runtime containerruntime.Runtime
	Nodes   []agent.Node

	clear func(context.Context) error // nil if there is nothing that outlives the process
}

// Open makes the runtime and the nodes. With CRI it fails when nobody serves the socket.
func Open(ctx context.Context, o Options) (*Machine, error) {
	switch {
	case o.Runtime != CRI && o.Name != "":
		return &Machine{
			Runtime: simulated.ForNode(clock.RealClock{}, o.Name), Nodes: []agent.Node{simulatedNode(o.Name, o.Address, o.Version)},
		}, nil
	case o.Runtime != CRI:
		return &Machine{Runtime: simulated.New(clock.RealClock{}), Nodes: simulatedNodes(o)}, nil
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
	node.Info.ContainerRuntimeVersion = containers.Name() + "://" + containers.Version()
	return &Machine{Runtime: containers, Nodes: []agent.Node{node}, clear: containers.Clear}, nil
}

// Clear ends and removes all containers, at once, when no agent will come back for them.
func (m *Machine) Clear(ctx context.Context) error {
	if m.clear == nil {
		return nil
	}
	return m.clear(ctx)
}

// What a simulated node offers: enough for the usual number of pods to fit by what they request.
const (
	simulatedCPU    = "32"
	simulatedMemory = "256Gi"
	simulatedDisk   = "1Ti"
	mostPods        = "110"
)

// Names are those of the nodes that have none of their own; none if this machine is the node.
func (o Options) Names() []string {
	var names []string
	for i := range o.Nodes {
		if o.Runtime != CRI {
			names = append(names, "node-"+strconv.Itoa(i+1))
		}
	}
	return names
}

// simulatedNodes are the nodes that are asked for. Their names do not change from run to run.
func simulatedNodes(o Options) []agent.Node {
	nodes := make([]agent.Node, 0, o.Nodes)
	for i, name := range o.Names() {
		nodes = append(nodes, simulatedNode(name, fmt.Sprintf("10.%d.%d.%d", 64+(i+1)>>16&63, (i+1)>>8&255, (i+1)&255), o.Version))
	}
	return nodes
}

// simulatedNode is what a simulated node says of itself.
func simulatedNode(name, address, version string) agent.Node {
	info := corev1.NodeSystemInfo{
		OperatingSystem: "linux", Architecture: goruntime.GOARCH, OSImage: "simulated", KernelVersion: "simulated",
		ContainerRuntimeVersion: "simulated://1", KubeletVersion: version,
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(simulatedCPU), corev1.ResourceMemory: resource.MustParse(simulatedMemory),
		corev1.ResourceEphemeralStorage: resource.MustParse(simulatedDisk), corev1.ResourcePods: resource.MustParse(mostPods),
	}
	return agent.Node{Name: name, Capacity: capacity, Info: info, Addresses: []string{address}}
}
