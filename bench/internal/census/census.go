// Package census fills an API server with objects in the shape of a large cluster: many revisions of each
// Deployment, and more Jobs than CronJobs would keep.
//
// The main flow: Create creates nodes and namespaces, then owners, then dependents, several at a time and
// in this order. No controller has to run: pods are created bound to a node.
package census

import (
	"context"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// The numbers of objects come from a published census of a cluster with 134 000 objects. Objects that the
// census does not break down are ConfigMaps, Secrets and Services here. The main module's tests have the same
// objects as a graph without a server (internal/testing/census); this module does not require the main module.
const (
	all         = 134_000
	nodes       = 500
	namespaces  = 300
	deployments = 19_924
	replicaSets = 43_033
	pods        = 29_455
	jobs        = 19_861
)

const (
	// clients is the number of concurrent requests.
	clients = 32
	// seed makes the same cluster each time.
	seed = 1
)

// Largest is the namespace with a tenth of all objects. It has an object of each kind, among them Deployment.
const (
	Largest    = "ns-0"
	Deployment = "d-0"
)

// generator creates objects.
type generator struct {
	client kubernetes.Interface
	random *rand.Rand // only used before requests are made
	part   int

	deployments, replicaSets, jobs []owner
}

// owner is an object that may own others.
type owner struct {
	namespace string
	reference metav1.OwnerReference
}

// Create creates the objects, or one in part of them, and returns their number.
func Create(ctx context.Context, client kubernetes.Interface, part int) (int, error) {
	g := &generator{client: client, random: rand.New(rand.NewPCG(seed, seed)), part: part}
	made := 0
	for _, step := range []struct {
		what  string
		count int
		make  func(context.Context, int) error
	}{
		{"nodes", g.count(nodes), g.node},
		{"namespaces", g.count(namespaces), g.namespaceAndAccount},
		{"Deployments", g.count(deployments), g.makeDeployments()},
		{"ReplicaSets", g.count(replicaSets), g.makeReplicaSets()},
		{"Jobs", g.count(jobs), g.makeJobs()},
		{"pods", g.count(pods), g.makePods()},
		{"other objects", g.count(all - nodes - namespaces - deployments - replicaSets - pods - jobs), g.makeOthers()},
	} {
		if err := each(ctx, step.count, step.make); err != nil {
			return made, fmt.Errorf("create %s: %w", step.what, err)
		}
		made += step.count
	}
	return made, nil
}

func (g *generator) count(of int) int { return max(1, of/g.part) }

// each makes n objects.
func each(ctx context.Context, n int, create func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(clients)
	for i := range n {
		group.Go(func() error { return create(ctx, i) })
	}
	return group.Wait()
}

// places returns namespaces for n objects; the first is the largest.
func (g *generator) places(n int) []string {
	chosen := make([]string, n)
	for i := range chosen {
		chosen[i] = Largest
		if i > 0 && g.random.IntN(10) > 0 {
			chosen[i] = fmt.Sprintf("ns-%d", g.random.IntN(g.count(namespaces)))
		}
	}
	return chosen
}

// node creates a node that is ready.
func (g *generator) node(ctx context.Context, i int) error {
	node, err := g.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	_, err = g.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

// namespaceAndAccount creates a namespace and, unless a controller has created it, the service account that
// pods need.
func (g *generator) namespaceAndAccount(ctx context.Context, i int) error {
	name := fmt.Sprintf("ns-%d", i)
	if _, err := g.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := g.client.CoreV1().ServiceAccounts(name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
