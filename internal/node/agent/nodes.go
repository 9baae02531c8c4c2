package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// DefaultLease is the default duration of a node's Lease, as for the kubelet. A Lease is renewed four times within
	// its duration.
	DefaultLease = 40 * time.Second
	renewals     = 4
	statusEvery  = 5 * time.Minute
	// registrars is the number of nodes that the agent registers, or whose heartbeats it sends, concurrently.
	registrars = 4
	// retryAfter is the delay after a failed registration.
	retryAfter = time.Second
	// reports is the maximum number of attempts to report a node's status when writes conflict.
	reports = 3
)

// errRemoved means that a node is no longer in the API, or that another node has its name.
var errRemoved = errors.New("the node was removed from the API")

// Node is a node that an agent runs.
type Node struct {
	Name     string
	Capacity corev1.ResourceList
	// Labels are its labels besides hostname, operating system and architecture.
	Labels map[string]string
	// Addresses are its IP addresses, the primary one first.
	Addresses []string
	// Port is the port on which it serves logs, or 0.
	Port int32
	// Features are the optional features of its runtime; nil if it has none.
	Features *corev1.NodeFeatures
	Info     corev1.NodeSystemInfo
}

// registered is a node that is in the API.
type registered struct {
	Node
	uid   types.UID
	lease *coordinationv1.Lease // as we last wrote it
	// heard and reported are the wall-clock times of the last heartbeat and of the last status
	// report.
	heard, reported time.Time
	// again repeats the report with the next heartbeat. A controller that watches nodes may have seen the last report
	// before the heartbeat that preceded it, and have reverted it.
	again bool
	// down means that the last report said that the runtime is not healthy.
	down bool
}

// roster contains the nodes that are in the API. It is safe for concurrent use.
type roster struct {
	mu    sync.Mutex
	nodes map[string]registered // guarded by mu
}

func (r *roster) add(n registered) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes[n.Name] = n
}

func (r *roster) remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.nodes, name)
}

func (r *roster) find(name string) (registered, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, ok := r.nodes[name]
	return n, ok
}

// keepNodes registers the nodes and sends their heartbeats until ctx ends. A node that is removed
// from the API is not registered again: the removal was intended. The heartbeats do not wait for a node that
// cannot be registered, which an admission policy may refuse.
func (a *Agent) keepNodes(ctx context.Context) {
	nodes := &roster{nodes: map[string]registered{}}
	var registering sync.WaitGroup
	registering.Go(func() { a.keepRegistering(ctx, nodes) })
	defer registering.Wait()
	for a.pause(ctx, a.lease/renewals) {
		a.each(ctx, slices.Collect(maps.Values(a.nodes)), func(n Node) {
			node, ok := nodes.find(n.Name)
			if !ok {
				return
			}
			err := a.beat(ctx, &node)
			switch {
			case errors.Is(err, errRemoved):
				a.log.InfoContext(ctx, "node was removed", "node", n.Name)
				nodes.remove(n.Name)
				return
			case err != nil && ctx.Err() == nil:
				a.failures.Warn(ctx, "heartbeat not sent", n.Name, err, "node", n.Name)
			}
			nodes.add(node)
		})
	}
}

// beat sends a heartbeat and, if it is due, reports the node's status. The report is due after missed heartbeats: a
// controller may have marked the node as unreachable. It is also due when the runtime fails or works again.
func (a *Agent) beat(ctx context.Context, n *registered) error {
	now := a.clock.Now().Round(0)
	missed := now.Sub(n.heard) > a.lease*3/(2*renewals)
	if err := a.renew(ctx, n); err != nil {
		return err
	}
	problem := a.inspect(n.Name)
	down := problem != ""
	if missed || n.again || down != n.down || now.Sub(n.reported) >= statusEvery {
		if err := a.reportNode(ctx, n.Node, n.uid, problem); err != nil {
			return err
		}
		n.reported, n.again, n.down = now, missed, down
	}
	if !down {
		a.release(n.Name)
	}
	n.heard = now
	return nil
}

// keepRegistering registers all nodes, and tries again those that failed until there are none or ctx ends.
func (a *Agent) keepRegistering(ctx context.Context, nodes *roster) {
	for missing := slices.Collect(maps.Values(a.nodes)); ; {
		if missing = a.registerThose(ctx, missing, nodes); len(missing) == 0 {
			break
		}
		if !a.pause(ctx, retryAfter) {
			return
		}
	}
	if ctx.Err() == nil {
		a.log.InfoContext(ctx, "nodes registered", "count", len(a.nodes))
		a.registered()
	}
}

// registerThose registers nodes, each with one try, and returns those that are still to be registered.
func (a *Agent) registerThose(ctx context.Context, those []Node, nodes *roster) (missing []Node) {
	var mu sync.Mutex // for missing
	a.each(ctx, those, func(n Node) {
		node, err := a.register(ctx, n)
		if err == nil {
			nodes.add(node)
			return
		}
		if ctx.Err() == nil {
			a.failures.Warn(ctx, "node not registered", n.Name, err, "node", n.Name)
		}
		mu.Lock()
		defer mu.Unlock()
		missing = append(missing, n)
	})
	return missing
}

// each calls do for nodes, a limited number of them concurrently, until ctx ends.
func (a *Agent) each(ctx context.Context, nodes []Node, do func(Node)) {
	todo := make(chan Node)
	var working sync.WaitGroup
	for range registrars {
		working.Go(func() {
			for n := range todo {
				do(n)
			}
		})
	}
	for _, n := range nodes {
		if ctx.Err() != nil {
			break
		}
		todo <- n
	}
	close(todo)
	working.Wait()
}

// pause waits for d, and reports whether ctx has not ended.
func (a *Agent) pause(ctx context.Context, d time.Duration) bool {
	timer := a.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// register creates or updates a node in the API, and begins its Lease.
func (a *Agent) register(ctx context.Context, n Node) (registered, error) {
	problem := a.inspect(n.Name)
	node, err := a.client.CoreV1().Nodes().Create(ctx, a.object(n, problem), metav1.CreateOptions{})
	known := apierrors.IsAlreadyExists(err)
	if known {
		node, err = a.readNode(ctx, n.Name, "")
	}
	if err != nil {
		return registered{}, fmt.Errorf("register node %s: %w", n.Name, err)
	}
	// The heartbeat comes first: a controller that considers the node unreachable would revert the
	// report.
	lease, err := a.beginLease(ctx, n.Name, node.UID)
	switch {
	case err != nil:
	case known:
		err = a.reportNode(ctx, n, node.UID, problem)
	default:
		a.recordReadiness(node)
	}
	now := a.clock.Now().Round(0)
	return registered{Node: n, uid: node.UID, lease: lease, heard: now, reported: now, again: known, down: problem != ""}, err
}

// beginLease creates the Lease of a node, or takes over an existing one. A Lease that belongs to an
// earlier node of the same name will be garbage-collected, and is then created again.
func (a *Agent) beginLease(ctx context.Context, name string, node types.UID) (*coordinationv1.Lease, error) {
	now, seconds := a.leaseTimes()
	leases := a.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: corev1.NamespaceNodeLease,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: seconds, RenewTime: now},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		if lease, err = leases.Get(ctx, name, metav1.GetOptions{}); err == nil {
			lease, err = a.renewLease(ctx, lease)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("begin the lease of node %s: %w", name, err)
	}
	return lease, nil
}

// renewLease renews a Lease, provided that it has not been written meanwhile. A PUT of the whole Lease costs the server
// half as much as a PATCH.
func (a *Agent) renewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	renewed := lease.DeepCopy()
	renewed.Spec.HolderIdentity = &lease.Name
	renewed.Spec.RenewTime, renewed.Spec.LeaseDurationSeconds = a.leaseTimes()
	return a.client.CoordinationV1().Leases(lease.Namespace).Update(ctx, renewed, metav1.UpdateOptions{})
}

// leaseTimes returns the time and the duration of a Lease that is renewed now.
func (a *Agent) leaseTimes() (now *metav1.MicroTime, seconds *int32) {
	return new(metav1.NewMicroTime(a.clock.Now())), new(int32(max(a.lease/time.Second, 1)))
}

// renew sends a heartbeat. If the Lease was replaced or removed, the node may have been removed
// too.
func (a *Agent) renew(ctx context.Context, n *registered) error {
	lease, err := a.renewLease(ctx, n.lease)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		if _, err := a.readNode(ctx, n.Name, n.uid); err != nil {
			return err
		}
		lease, err = a.beginLease(ctx, n.Name, n.uid)
	}
	if err != nil {
		return err
	}
	n.lease = lease
	return nil
}

// readNode reads a node. It returns errRemoved if a uid is given and the node has another.
func (a *Agent) readNode(ctx context.Context, name string, uid types.UID) (*corev1.Node, error) {
	node, err := a.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && uid != "":
		return nil, errRemoved
	case err != nil:
		return nil, fmt.Errorf("read node %s: %w", name, err)
	case uid != "" && node.UID != uid:
		return nil, errRemoved
	}
	return node, nil
}

// reportNode writes the status of the node with that uid, or of any node of that name if uid is
// empty. problem is why the runtime cannot be used, or "". After a conflict it reads the node again and retries.
func (a *Agent) reportNode(ctx context.Context, n Node, uid types.UID, problem string) error {
	var conflict error
	for range reports {
		node, err := a.readNode(ctx, n.Name, uid)
		if err != nil {
			return err
		}
		patch, err := nodePatch(a.object(n, problem).Status, node)
		if err != nil {
			return err
		}
		written, err := a.client.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		switch {
		case err == nil:
			if isReady(written) != isReady(node) {
				a.recordReadiness(written)
			}
			return nil
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
			return fmt.Errorf("report the status of node %s: %w", n.Name, err)
		}
		conflict = err
	}
	return fmt.Errorf("report the status of node %s: %w", n.Name, conflict)
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// nodePatch returns a patch that sets the node's status, provided that the node is unchanged since it was read. It keeps the
// transition times of conditions whose status does not change.
func nodePatch(status corev1.NodeStatus, node *corev1.Node) ([]byte, error) {
	for i := range status.Conditions {
		c := &status.Conditions[i]
		for _, old := range node.Status.Conditions {
			if old.Type == c.Type && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion},
		"status":   patchedStatus{status, status.Features},
	})
}

// patchedStatus is a status in a patch. Its features are null if there are none: a patch without them would leave those that
// an earlier runtime had.
type patchedStatus struct {
	corev1.NodeStatus

	Features *corev1.NodeFeatures `json:"features"`
}

// object returns the Node object for a node. problem is why the runtime cannot be used, or "".
func (a *Agent) object(n Node, problem string) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{
			corev1.LabelHostname: n.Name, corev1.LabelOSStable: n.Info.OperatingSystem, corev1.LabelArchStable: n.Info.Architecture,
		}},
		Status: corev1.NodeStatus{Capacity: n.Capacity, Allocatable: n.Capacity, NodeInfo: n.Info, Features: n.Features},
	}
	maps.Copy(node.Labels, n.Labels)
	for _, ip := range n.Addresses {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: n.Name})
	if n.Port != 0 {
		node.Status.DaemonEndpoints.KubeletEndpoint.Port = n.Port
	}
	now := metav1.NewTime(a.clock.Now())
	for _, c := range []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "node has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "node has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "node has sufficient PID available"},
		readiness(problem),
	} {
		c.LastHeartbeatTime, c.LastTransitionTime = now, now
		node.Status.Conditions = append(node.Status.Conditions, c)
	}
	return node
}

// readiness returns the condition Ready of a node, without times.
func readiness(problem string) corev1.NodeCondition {
	if problem != "" {
		return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: problem}
	}
	return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "node agent is posting ready status"}
}
