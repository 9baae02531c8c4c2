package reader

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

const (
	// fewWorkloads is the number of workloads that are read one by one; for more, all workloads are listed.
	fewWorkloads = 32
	// workloadPage bounds one page of a workload list.
	workloadPage = 500
)

// readWorkloads adds the workloads of Deployments, StatefulSets and DaemonSets.
func (r *Facts) readWorkloads(ctx context.Context, objects map[ownership.UID]*inventory.Object, known map[ownership.UID]inventory.Fact[inventory.Workload]) {
	if !r.isListed && len(objects) > 0 && len(known)+len(objects) > fewWorkloads {
		r.listWorkloads(ctx, known)
		r.isListed = true
	}
	for _, o := range sorted(objects) {
		if _, isKnown := known[o.UID]; !isKnown {
			known[o.UID] = inventory.FactOf(r.workload(ctx, o))
		}
	}
}

func (r *Facts) workload(ctx context.Context, o *inventory.Object) (inventory.Workload, error) {
	apps, options := r.client.AppsV1(), metav1.GetOptions{}
	switch o.Kind.Kind {
	case "Deployment":
		one, err := apps.Deployments(o.Namespace).Get(ctx, o.Name, options)
		if err != nil {
			return inventory.Workload{}, err
		}
		return deploymentOf(one), nil
	case "StatefulSet":
		one, err := apps.StatefulSets(o.Namespace).Get(ctx, o.Name, options)
		if err != nil {
			return inventory.Workload{}, err
		}
		return statefulSetOf(one), nil
	case "DaemonSet":
		one, err := apps.DaemonSets(o.Namespace).Get(ctx, o.Name, options)
		if err != nil {
			return inventory.Workload{}, err
		}
		return daemonSetOf(one), nil
	default:
		return inventory.Workload{}, fmt.Errorf("%s is no workload", o.Kind)
	}
}

// listWorkloads adds all workloads, page by page. If a kind cannot be listed, each object is read alone.
func (r *Facts) listWorkloads(ctx context.Context, known map[ownership.UID]inventory.Fact[inventory.Workload]) {
	apps := r.client.AppsV1()
	add := func(meta *metav1.ObjectMeta, w inventory.Workload) {
		known[ownership.UID(meta.UID)] = inventory.Fact[inventory.Workload]{Value: w}
	}
	pages(workloadPage, func(options metav1.ListOptions) (string, error) {
		page, err := apps.Deployments("").List(ctx, options)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			add(&page.Items[i].ObjectMeta, deploymentOf(&page.Items[i]))
		}
		return page.Continue, nil
	})
	pages(workloadPage, func(options metav1.ListOptions) (string, error) {
		page, err := apps.StatefulSets("").List(ctx, options)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			add(&page.Items[i].ObjectMeta, statefulSetOf(&page.Items[i]))
		}
		return page.Continue, nil
	})
	pages(workloadPage, func(options metav1.ListOptions) (string, error) {
		page, err := apps.DaemonSets("").List(ctx, options)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			add(&page.Items[i].ObjectMeta, daemonSetOf(&page.Items[i]))
		}
		return page.Continue, nil
	})
}

// pages reads a list until its end, or until it fails.
func pages(size int64, read func(metav1.ListOptions) (next string, err error)) {
	options := metav1.ListOptions{Limit: size}
	for {
		next, err := read(options)
		if err != nil || next == "" {
			return
		}
		options.Continue = next
	}
}

func deploymentOf(one *appsv1.Deployment) inventory.Workload {
	w := workloadOf(&one.Spec.Template)
	w.Replicas, w.Ready = replicas(one.Spec.Replicas), one.Status.ReadyReplicas
	for _, c := range one.Status.Conditions {
		if c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionFalse {
			w.UnreadySince = c.LastTransitionTime.Time
		}
	}
	return w
}

func statefulSetOf(one *appsv1.StatefulSet) inventory.Workload {
	w := workloadOf(&one.Spec.Template)
	w.Replicas, w.Ready = replicas(one.Spec.Replicas), one.Status.ReadyReplicas
	return w
}

func daemonSetOf(one *appsv1.DaemonSet) inventory.Workload {
	w := workloadOf(&one.Spec.Template)
	w.Replicas, w.Ready = one.Status.DesiredNumberScheduled, one.Status.NumberReady
	return w
}

// workloadOf returns a workload with the service account and the images of a pod template.
func workloadOf(template *corev1.PodTemplateSpec) inventory.Workload {
	w := inventory.Workload{ServiceAccount: template.Spec.ServiceAccountName}
	if w.ServiceAccount == "" {
		w.ServiceAccount = "default"
	}
	for i := range template.Spec.Containers {
		w.Images = append(w.Images, template.Spec.Containers[i].Image)
	}
	return w
}

// replicas returns the number of desired replicas; the default is one.
func replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

// lease reads a Lease.
func (r *Facts) lease(ctx context.Context, o *inventory.Object) (inventory.Lease, error) {
	one, err := r.client.CoordinationV1().Leases(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	if err != nil {
		return inventory.Lease{}, err
	}
	var l inventory.Lease
	if one.Spec.HolderIdentity != nil {
		l.Holder = *one.Spec.HolderIdentity
	}
	if one.Spec.RenewTime != nil {
		l.Renewed = one.Spec.RenewTime.Time
	}
	if one.Spec.LeaseDurationSeconds != nil {
		l.Duration = time.Duration(*one.Spec.LeaseDurationSeconds) * time.Second
	}
	return l, nil
}
