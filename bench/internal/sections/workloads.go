package sections

import (
	"context"
	"errors"
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
	side      string
	plane     *controlplane.Plane
	namespace string
	count     int
	replicas  int32
	clients   int
}

func (d deployments) pods() int { return d.count * int(d.replicas) }

// workloads measures many small Deployments on simulated nodes, those of coppice up and then those of kwok: the time to
// create them until all of their pods are ready, and to delete them until all of their dependents are gone.
func workloads(ctx context.Context, b *Bench) error {
	nodes := 1 + b.Sizes.Deployments*podsPerDeployment/podsPerNode
	err := b.onCoppice(ctx, func(ctx context.Context, p *controlplane.Plane) error {
		return b.workloadsOn(ctx, p, coppiceUp)
	}, fmt.Sprintf("--nodes=%d", nodes))
	if err != nil {
		return fmt.Errorf("%s: %w", coppiceUp, err)
	}
	err = b.onKwok(ctx, nodes, func(ctx context.Context, p *controlplane.Plane) error { return b.workloadsOn(ctx, p, kwok) })
	if err != nil {
		return fmt.Errorf("%s: %w", kwok, err)
	}
	b.compare(coppiceUp, kwok)
	return nil
}

// workloadStep is a step of the section workloads.
type workloadStep struct {
	what string
	do   func(context.Context) error
}

// workloadsOn measures all steps on one side. One Deployment comes and goes before, so that no figure includes the start of a
// controller.
func (b *Bench) workloadsOn(ctx context.Context, p *controlplane.Plane, side string) (err error) {
	first := deployments{side: side, plane: p, count: 1, replicas: podsPerDeployment, clients: 1}
	if err := b.comeAndGo(ctx, first); err != nil {
		return fmt.Errorf("the first Deployment: %w", err)
	}
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		namespace, err := b.populatedNamespace(ctx, p)
		if err != nil {
			return err
		}
		d := deployments{side, p, namespace, b.Sizes.Deployments, podsPerDeployment, b.Sizes.Clients}
		for _, step := range []workloadStep{
			{"created until ready", d.create},
			{"deleted until gone, " + strings.ToLower(string(policy)), func(ctx context.Context) error { return d.delete(ctx, policy) }},
		} {
			if err := b.workloadsStep(ctx, d, step); err != nil {
				return err
			}
		}
	}
	return nil
}

// comeAndGo creates Deployments in a namespace of their own, and deletes them, without measuring it.
func (b *Bench) comeAndGo(ctx context.Context, d deployments) (err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if d.namespace, err = b.populatedNamespace(ctx, d.plane); err != nil {
		return err
	}
	if err := d.create(ctx); err != nil {
		return err
	}
	return d.delete(ctx, metav1.DeletePropagationBackground)
}

// workloadsStep measures one step: its rate, the processor time and the requests for each pod, and the memory at its end. It
// begins after a pause, so that no step pays for what controllers still do after another one.
func (b *Bench) workloadsStep(ctx context.Context, d deployments, step workloadStep) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := pause(ctx, b.Sizes.Idle); err != nil {
		return err
	}
	counted, err := b.countingRequests(ctx, d, step.what)
	if err != nil {
		return err
	}
	if _, err := b.work(ctx, d.plane, work{d.side, "Deployments of 3, " + step.what, "pods", d.pods()}, func() error { return step.do(ctx) }); err != nil {
		return err
	}
	return errors.Join(b.memory(d.plane, d.side, step.what+", RssAnon at the end"), counted())
}

// countingRequests begins to count the requests of a step, and returns a function that adds their number per pod: on coppice
// up from each part of the control plane, from the audit log; on kube-apiserver of all parts together, from the metrics.
func (b *Bench) countingRequests(ctx context.Context, d deployments, what string) (end func() error, err error) {
	if d.plane.AuditLog() == "" {
		before, err := d.plane.Requests(ctx)
		return func() error {
			after, err := d.plane.Requests(ctx)
			// One reading of the metrics is the benchmark's own.
			b.add(d.side, what+requestsForEach, "", (after-before-1)/float64(d.pods()))
			return err
		}, err
	}
	log, err := openAudit(d.plane.AuditLog())
	return func() error {
		defer log.Close()
		counts, err := countRequests(log)
		b.addRequests(what, counts, d.pods())
		return err
	}, err
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
		d := deployments{coppiceUp, p, namespace, b.Sizes.Pods / b.Sizes.PodsPerSet, int32(b.Sizes.PodsPerSet), b.Sizes.Clients}
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
		{corev1.SchemeGroupVersion.WithResource("pods"), d.pods()},
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
