package system

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/node/agent"
	"github.com/coppice-dev/coppice/internal/node/agent/containerruntime/simulated"
	"github.com/coppice-dev/coppice/internal/node/agent/nodeconfig"
	"github.com/coppice-dev/coppice/internal/testing/transcript"
)

// aNode is an agent of one node against a real server, with the test's clock.
type aNode struct {
	client kubernetes.Interface
	clock  *clocktesting.FakeClock
	log    *transcript.Transcript
	// deletions is the number of DELETEs that the agent and the test have sent.
	deletions atomic.Int64
}

// counting is the transport of a client whose deletions are counted.
type counting struct {
	next      http.RoundTripper
	deletions *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodDelete {
		c.deletions.Add(1)
	}
	return c.next.RoundTrip(r)
}

// withNode runs a control plane and an agent whose node "worker" is registered, while use runs.
func withNode(t *testing.T, use func(ctx context.Context, n *aNode) error) {
	t.Helper()
	runWith(t, ephemeral(t), func(ctx context.Context, client kubernetes.Interface) error {
		n := &aNode{client: client, clock: clocktesting.NewFakeClock(time.Now()), log: &transcript.Transcript{}}
		core, ok := client.CoreV1().RESTClient().(*rest.RESTClient)
		if !ok {
			return fmt.Errorf("the client is a %T", client.CoreV1().RESTClient())
		}
		core.Client.Transport = counting{core.Client.Transport, &n.deletions}
		worker, err := nodeconfig.Open(ctx, nodeconfig.Options{Runtime: nodeconfig.Simulated, Nodes: 1, Name: "worker", Address: "127.0.0.1", Version: "v1", Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		registered := make(chan struct{})
		a, err := agent.New(agent.Config{
			Client: client, Runtime: simulated.ForNode(n.clock, "worker"), Nodes: worker.Nodes,
			Clock: n.clock, Logger: slog.New(slog.NewTextHandler(n.log, nil)), Registered: func() { close(registered) },
		})
		if err != nil {
			return err
		}
		working, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- a.Run(working) }()
		select {
		case <-registered:
			err = use(ctx, n)
		case err = <-ended:
			ended <- nil
		}
		stop()
		return errors.Join(err, <-ended)
	})
}

// passes advances the clock in steps until a condition holds.
func (n *aNode) passes(ctx context.Context, step time.Duration, what string, holds func(context.Context) (bool, error)) error {
	return becomesTrue(ctx, what, func(ctx context.Context) (bool, error) {
		n.clock.Step(step)
		return holds(ctx)
	})
}

// runs waits until a pod runs.
func (n *aNode) runs(ctx context.Context, pod string) error {
	return becomesTrue(ctx, "pod "+pod+" runs", func(ctx context.Context) (bool, error) {
		pod, err := n.client.CoreV1().Pods("default").Get(ctx, pod, metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning, err
	})
}

// An agent whose node was marked as unreachable reports the node as ready once it sends heartbeats again.
func TestNodeThatIsHeardAgain(t *testing.T) {
	withNode(t, func(ctx context.Context, n *aNode) error {
		nodes := n.client.CoreV1().Nodes()
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // its agent writes the status, too
			node, err := nodes.Get(ctx, "worker", metav1.GetOptions{})
			if err != nil {
				return err
			}
			for i := range node.Status.Conditions {
				node.Status.Conditions[i].Status = corev1.ConditionUnknown
			}
			_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			return err
		}
		// Time for several heartbeats passes at once: the agent sends none meanwhile.
		return n.passes(ctx, agent.DefaultLease, "the node is ready", func(ctx context.Context) (bool, error) {
			node, err := nodes.Get(ctx, "worker", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			for _, c := range node.Status.Conditions {
				if c.Status == corev1.ConditionUnknown {
					return false, nil
				}
			}
			return true, nil
		})
	})
}

// A deleted Lease is recreated as long as the node exists.
func TestLeaseThatIsGone(t *testing.T) {
	withNode(t, func(ctx context.Context, n *aNode) error {
		leases := n.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		old, err := leases.Get(ctx, "worker", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := leases.Delete(ctx, "worker", metav1.DeleteOptions{}); err != nil {
			return err
		}
		return n.passes(ctx, agent.DefaultLease/4, "another lease", func(ctx context.Context) (bool, error) {
			lease, err := leases.Get(ctx, "worker", metav1.GetOptions{})
			return err == nil && lease.UID != old.UID && lease.OwnerReferences[0].Name == "worker", unlessMissing(err)
		})
	})
}

// A new node of the same name does not belong to the agent: the agent neither reports its status nor sends
// its heartbeats.
func TestNodeThatIsAnother(t *testing.T) {
	withNode(t, func(ctx context.Context, n *aNode) error {
		nodes, leases := n.client.CoreV1().Nodes(), n.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		if err := nodes.Delete(ctx, "worker", metav1.DeleteOptions{}); err != nil {
			return err
		}
		other, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		// The collector deletes the Lease with the node.
		err = becomesTrue(ctx, "the lease is gone", func(ctx context.Context) (bool, error) {
			_, err := leases.Get(ctx, "worker", metav1.GetOptions{})
			return apierrors.IsNotFound(err), unlessMissing(err)
		})
		if err != nil {
			return err
		}
		err = n.passes(ctx, agent.DefaultLease/4, "the agent notices", func(context.Context) (bool, error) { return strings.Contains(n.log.String(), "node was removed"), nil })
		if err != nil {
			return err
		}
		now, err := nodes.Get(ctx, "worker", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if _, err := leases.Get(ctx, "worker", metav1.GetOptions{}); !apierrors.IsNotFound(err) || now.UID != other.UID || now.Status.NodeInfo.KubeletVersion != "" {
			return fmt.Errorf("node %+v, lease: %w", now.Status, err)
		}
		return nil
	})
}

// A deleted pod is removed once: the agent does not retry at once while a finalizer blocks the
// removal.
func TestPodIsRemovedOnce(t *testing.T) {
	withNode(t, func(ctx context.Context, n *aNode) error {
		pods := n.client.CoreV1().Pods("default")
		pod := boundPod("held", "worker")
		pod.Finalizers = []string{"example.com/held"}
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
		if err := n.runs(ctx, "held"); err != nil {
			return err
		}
		if err := pods.Delete(ctx, "held", metav1.DeleteOptions{}); err != nil {
			return err
		}
		err := becomesTrue(ctx, "the agent has removed it", func(ctx context.Context) (bool, error) {
			pod, err := pods.Get(ctx, "held", metav1.GetOptions{})
			return err == nil && *pod.DeletionGracePeriodSeconds == 0, err
		})
		if err != nil {
			return err
		}
		// The test's clock does not advance. Another running pod shows that the agent has had time to
		// repeat the removal.
		if _, err := pods.Create(ctx, boundPod("later", "worker"), metav1.CreateOptions{}); err != nil {
			return err
		}
		if err := n.runs(ctx, "later"); err != nil {
			return err
		}
		if sent := n.deletions.Load(); sent != 2 {
			return fmt.Errorf("%d deletions, want that of the test and one of the agent", sent)
		}
		_, err = pods.Patch(ctx, "held", types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{})
		return err
	})
}
