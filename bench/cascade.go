package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

const cascadeTimeout = 10 * time.Minute

// oneRun measures one control plane.
func oneRun(ctx context.Context, c config) ([]sample, error) {
	p, err := startPlane(ctx, c.binary)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	samples := []sample{{"start to ready", "s", p.ready.Seconds()}}
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for _, memory := range []struct{ what, field string }{
		{"idle memory (RSS)", "VmRSS"},
		{"idle memory that is not pages of the binary (RssAnon)", "RssAnon"},
	} {
		megabytes, err := p.memory(memory.field)
		if err != nil {
			return nil, err
		}
		samples = append(samples, sample{memory.what, "MB", megabytes})
	}
	for _, policy := range policies {
		got, err := cascade(ctx, c, p, policy)
		if err != nil {
			return nil, fmt.Errorf("%s cascade: %w", policy, err)
		}
		name := fmt.Sprintf("%s cascade of %d", policy, c.dependents)
		samples = append(samples, sample{name, "objects/s", got.speed}, sample{name + ", requests per object", "requests", got.requests})
		samples = append(samples, got.costs...)
		samples = append(samples, sample{"create, " + fmt.Sprint(c.creators) + " clients", "objects/s", got.created})
	}
	return samples, nil
}

var policies = []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}

// outcome is what was measured of one cascade.
type outcome struct {
	speed    float64 // dependents dealt with in a second
	requests float64 // for each dependent
	created  float64 // dependents created in a second, before
	costs    []sample
}

// cascade creates an owner with many dependents in a namespace of its own, deletes
// it, and measures until its policy has been carried out.
func cascade(ctx context.Context, c config, p *plane, policy metav1.DeletionPropagation) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, cascadeTimeout)
	defer cancel()
	p.cascades++
	namespace := fmt.Sprintf("bench-%d", p.cascades)
	began := time.Now()
	if err := populate(ctx, c, p, namespace); err != nil {
		return outcome{}, err
	}
	created := float64(c.dependents) / time.Since(began).Seconds()

	list, err := p.metadata.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return outcome{}, err
	}
	events, err := p.metadata.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return outcome{}, err
	}
	defer events.Stop()
	before, err := p.requests(ctx)
	if err != nil {
		return outcome{}, err
	}
	profiled := p.profile(ctx, c.profiles, string(policy))
	cpuBefore, err := p.spentSoFar()
	if err != nil {
		return outcome{}, err
	}
	began = time.Now()
	if err := p.client.CoreV1().ConfigMaps(namespace).Delete(ctx, "owner", metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		return outcome{}, err
	}
	if err := finished(ctx, events, policy, c.dependents); err != nil {
		return outcome{}, err
	}
	took := time.Since(began)
	cpuAfter, err := p.spentSoFar()
	if err != nil {
		return outcome{}, err
	}
	if err := profiled(); err != nil {
		return outcome{}, err
	}
	after, err := p.requests(ctx)
	if err != nil {
		return outcome{}, err
	}
	// The DELETE of the owner and one reading of the metrics are the benchmark's own.
	perObject := (after - before - 2) / float64(c.dependents)
	costs := cpuAfter.costs(cpuBefore, fmt.Sprintf("%s cascade of %d", policy, c.dependents), c.dependents)
	return outcome{float64(c.dependents) / took.Seconds(), perObject, created, costs}, nil
}

// populate creates a namespace, an owner and its dependents.
func populate(ctx context.Context, c config, p *plane, namespace string) error {
	if _, err := p.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	owner, err := p.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	blocking := true
	reference := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: &blocking}
	group, ctx := errgroup.WithContext(ctx)
	for worker := range c.creators {
		group.Go(func() error {
			for i := worker; i < c.dependents; i += c.creators {
				_, err := p.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("dependent-%05d", i), OwnerReferences: []metav1.OwnerReference{reference}},
				}, metav1.CreateOptions{})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// finished reads watch events until the owner is gone and every dependent is gone
// too, or, when they are orphaned, has no owner any more.
func finished(ctx context.Context, events watch.Interface, policy metav1.DeletionPropagation, dependents int) error {
	ownerGone, left := false, dependents
	for !ownerGone || left > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d dependents left: %w", left, dependents, ctx.Err())
		case event, open := <-events.ResultChan():
			if !open {
				return fmt.Errorf("the watch ended with %d of %d dependents left", left, dependents)
			}
			object, ok := event.Object.(*metav1.PartialObjectMetadata)
			switch {
			case !ok:
				return fmt.Errorf("the watch sent %s %T", event.Type, event.Object)
			case object.Name == "owner":
				ownerGone = ownerGone || event.Type == watch.Deleted
			case event.Type == watch.Deleted && policy == metav1.DeletePropagationOrphan:
				return fmt.Errorf("%s was deleted though it was to be orphaned", object.Name)
			case event.Type == watch.Deleted,
				event.Type == watch.Modified && policy == metav1.DeletePropagationOrphan && len(object.OwnerReferences) == 0:
				left--
			}
		}
	}
	return nil
}
