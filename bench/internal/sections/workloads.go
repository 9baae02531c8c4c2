package sections

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/coppice-dev/coppice/bench/internal/controlplane"
	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

const (
	podsPerDeployment = 3
	// podsPerNode is below the 110 pods that a simulated node can run.
	podsPerNode = 50
)

// deployments are Deployments of the same size.
type deployments struct {
	plane     *controlplane.Plane
	namespace string
	count     int
	replicas  int32
	clients   int
}

// workloads measures many small Deployments on simulated nodes: the time to create them until all
// of their pods are ready, and to delete them until all of their dependents are gone.
func workloads(ctx context.Context, b *Bench) error {
	pods := b.Sizes.Deployments * podsPerDeployment
	return b.onCoppice(ctx, func(ctx context.Context, p *controlplane.Plane) error {
		for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
			namespace, err := b.populatedNamespace(ctx, p)
			if err != nil {
				return err
			}
			d := deployments{p, namespace, b.Sizes.Deployments, podsPerDeployment, b.Sizes.Clients}
			if err := b.workloadsStep(ctx, d, "created until ready", d.create); err != nil {
				return err
			}
			what := "deleted until gone, " + strings.ToLower(string(policy))
			if err := b.workloadsStep(ctx, d, what, func(ctx context.Context) error { return d.delete(ctx, policy) }); err != nil {
				return err
			}
		}
		return nil
	}, fmt.Sprintf("--nodes=%d", 1+pods/podsPerNode))
}

// workloadsStep measures one step, and the number of requests per pod from each part of the control
// plane.
func (b *Bench) workloadsStep(ctx context.Context, d deployments, what string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	log, err := openAudit(d.plane.AuditLog())
	if err != nil {
		return err
	}
	defer log.Close()
	pods := d.count * int(d.replicas)
	if _, err := b.work(ctx, d.plane, work{coppiceUp, "Deployments of 3, " + what, "pods", pods}, func() error { return do(ctx) }); err != nil {
		return err
	}
	counts, err := countRequests(log)
	if err != nil {
		return err
	}
	b.addRequests(what, counts, pods)
	return nil
}

// simulatedNodes measures very many pods in one process.
func simulatedNodes(ctx context.Context, b *Bench) error {
	ctx, cancel := context.WithTimeout(ctx, 2*stepTimeout)
	defer cancel()
	return b.onCoppice(ctx, func(ctx context.Context, p *controlplane.Plane) error {
		namespace, err := b.populatedNamespace(ctx, p)
		if err != nil {
			return err
		}
		d := deployments{p, namespace, b.Sizes.Pods / b.Sizes.PodsPerSet, int32(b.Sizes.PodsPerSet), b.Sizes.Clients}
		what := fmt.Sprintf("%d pods of %d Deployments on %d nodes, ", b.Sizes.Pods, d.count, b.Sizes.Nodes)
		watch := stopwatch.Start()
		if err := d.create(ctx); err != nil {
			return err
		}
		b.add(coppiceUp, what+"all ready", "s", watch.Seconds())
		heap, err := p.LiveHeap(ctx)
		if err != nil {
			return err
		}
		b.add(coppiceUp, what+"heap in use", "MB", heap/1e6)
		b.add(coppiceUp, what+"heap in use for each pod", "kB", heap/1e3/float64(b.Sizes.Pods))
		return b.idle(ctx, p, coppiceUp)
	}, fmt.Sprintf("--nodes=%d", b.Sizes.Nodes))
}

// each calls a function with the name of every Deployment, with all clients concurrently.
func (d deployments) each(ctx context.Context, group *errgroup.Group, do func(ctx context.Context, name string) error) {
	for worker := range d.clients {
		group.Go(func() error {
			for i := worker; i < d.count; i += d.clients {
				if err := do(ctx, fmt.Sprintf("web-%04d", i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// create creates the Deployments, and waits until all of their pods are ready.
func (d deployments) create(ctx context.Context) error {
	client := d.plane.Client.AppsV1().Deployments(d.namespace)
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	events, err := follow(ctx, list.ResourceVersion, client.Watch)
	if err != nil {
		return err
	}
	defer events.Stop()
	group, ctx := errgroup.WithContext(ctx)
	d.each(ctx, group, func(ctx context.Context, name string) error {
		_, err := client.Create(ctx, d.object(name), metav1.CreateOptions{})
		return err
	})
	ready := map[string]bool{}
	group.Go(func() error {
		return await(ctx, events, "Deployments are ready", func(e watch.Event) (done bool) {
			if object, ok := e.Object.(*appsv1.Deployment); ok && object.Status.ReadyReplicas == d.replicas {
				ready[object.Name] = true
			}
			return len(ready) == d.count
		})
	})
	return group.Wait()
}

func (d deployments) object(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &d.replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
			},
		},
	}
}

// delete deletes the Deployments one by one, and waits until all of their dependents are gone.
func (d deployments) delete(ctx context.Context, policy metav1.DeletionPropagation) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, of := range []struct {
		resource schema.GroupVersionResource
		count    int
	}{
		{appsv1.SchemeGroupVersion.WithResource("deployments"), d.count},
		{appsv1.SchemeGroupVersion.WithResource("replicasets"), d.count},
		{corev1.SchemeGroupVersion.WithResource("pods"), d.count * int(d.replicas)},
	} {
		client := d.plane.Metadata.Resource(of.resource).Namespace(d.namespace)
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) != of.count {
			return fmt.Errorf("there are %d %s, not %d", len(list.Items), of.resource.Resource, of.count)
		}
		events, err := follow(ctx, list.ResourceVersion, client.Watch)
		if err != nil {
			return err
		}
		left := of.count
		group.Go(func() error {
			defer events.Stop()
			return await(ctx, events, of.resource.Resource+" are gone", func(e watch.Event) (done bool) {
				if e.Type == watch.Deleted {
					left--
				}
				return left == 0
			})
		})
	}
	d.each(ctx, group, func(ctx context.Context, name string) error {
		return d.plane.Client.AppsV1().Deployments(d.namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy})
	})
	return group.Wait()
}

// follow watches from a revision on, reopening the watch as often as necessary: on a busy
// machine, the server ends a watch that it cannot serve for a while.
func follow(ctx context.Context, version string, open func(context.Context, metav1.ListOptions) (watch.Interface, error)) (watch.Interface, error) {
	return watchtools.NewRetryWatcherWithContext(ctx, version, &cache.ListWatch{WatchFuncWithContext: open})
}

// await reads events until seen returns true.
func await(ctx context.Context, events watch.Interface, what string, seen func(watch.Event) (done bool)) error {
	for {
		select {
		case e, ok := <-events.ResultChan():
			switch {
			case !ok:
				return fmt.Errorf("the watch ended before all %s", what)
			case e.Type == watch.Error:
				return fmt.Errorf("watch until all %s: %w", what, apierrors.FromObject(e.Object))
			case seen(e):
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("not all %s: %w", what, ctx.Err())
		}
	}
}
