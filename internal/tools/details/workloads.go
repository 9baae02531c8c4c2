package details

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

const (
	// fewWorkloads is the number of workloads that are read one by one; after that, all workloads are listed.
	fewWorkloads = 32
	// workloadPage bounds one page of a workload list.
	workloadPage = 500
)

// Workload implements finalizerowner.Details.
func (d *Reader) Workload(o *inventory.Object) (finalizerowner.Workload, error) {
	if len(d.workloads) >= fewWorkloads && !d.listed {
		d.listed = true
		d.listWorkloads()
	}
	if known, ok := d.workloads[o.UID]; ok {
		return known.value, known.err
	}
	w, err := d.getWorkload(o)
	d.workloads[o.UID] = answer[finalizerowner.Workload]{w, err}
	return w, err
}

func (d *Reader) getWorkload(o *inventory.Object) (finalizerowner.Workload, error) {
	apps, options := d.client.AppsV1(), metav1.GetOptions{}
	switch o.Kind.Kind {
	case "Deployment":
		one, err := apps.Deployments(o.Namespace).Get(d.ctx, o.Name, options)
		if err != nil {
			return finalizerowner.Workload{}, err
		}
		return deploymentOf(one), nil
	case "StatefulSet":
		one, err := apps.StatefulSets(o.Namespace).Get(d.ctx, o.Name, options)
		if err != nil {
			return finalizerowner.Workload{}, err
		}
		return statefulSetOf(one), nil
	case "DaemonSet":
		one, err := apps.DaemonSets(o.Namespace).Get(d.ctx, o.Name, options)
		if err != nil {
			return finalizerowner.Workload{}, err
		}
		return daemonSetOf(one), nil
	default:
		return finalizerowner.Workload{}, fmt.Errorf("%s is no workload", o.Kind)
	}
}

// listWorkloads reads all workloads, page by page. If a kind cannot be listed, each object is read alone.
func (d *Reader) listWorkloads() {
	apps := d.client.AppsV1()
	pages(workloadPage, func(options metav1.ListOptions) (string, error) {
		page, err := apps.Deployments("").List(d.ctx, options)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			d.keep(page.Items[i].ObjectMeta, deploymentOf(&page.Items[i]))
		}
		return page.Continue, nil
	})
	pages(workloadPage, func(options metav1.ListOptions) (string, error) {
		page, err := apps.StatefulSets("").List(d.ctx, options)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			d.keep(page.Items[i].ObjectMeta, statefulSetOf(&page.Items[i]))
		}
		return page.Continue, nil
	})
	pages(workloadPage, func(options metav1.ListOptions) (string, error) {
		page, err := apps.DaemonSets("").List(d.ctx, options)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			d.keep(page.Items[i].ObjectMeta, daemonSetOf(&page.Items[i]))
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

func (d *Reader) keep(meta metav1.ObjectMeta, w finalizerowner.Workload) {
	d.workloads[ownership.UID(meta.UID)] = answer[finalizerowner.Workload]{value: w}
}

func deploymentOf(one *appsv1.Deployment) finalizerowner.Workload {
	w := workloadOf(&one.Spec.Template)
	w.Replicas, w.Ready = replicas(one.Spec.Replicas), one.Status.ReadyReplicas
	for _, c := range one.Status.Conditions {
		if c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionFalse {
			w.UnreadySince = c.LastTransitionTime.Time
		}
	}
	return w
}

func statefulSetOf(one *appsv1.StatefulSet) finalizerowner.Workload {
	w := workloadOf(&one.Spec.Template)
	w.Replicas, w.Ready = replicas(one.Spec.Replicas), one.Status.ReadyReplicas
	return w
}

func daemonSetOf(one *appsv1.DaemonSet) finalizerowner.Workload {
	w := workloadOf(&one.Spec.Template)
	w.Replicas, w.Ready = one.Status.DesiredNumberScheduled, one.Status.NumberReady
	return w
}

// workloadOf returns a workload with the service account and the images of a pod template.
func workloadOf(template *corev1.PodTemplateSpec) finalizerowner.Workload {
	w := finalizerowner.Workload{ServiceAccount: template.Spec.ServiceAccountName}
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
