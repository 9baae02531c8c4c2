package cri

import (
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The labels by which the agent finds its sandboxes and containers. The labels of Kubernetes are the kubelet's, which
// tools such as crictl use.
const (
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"
	// labelAgent identifies the agent that created the object (store.go).
	labelAgent = "coppice.dev/agent"
	// annotationBackoff is the delay that preceded the start of a container, in milliseconds.
	annotationBackoff = "coppice.dev/backoff"
	// annotationImage is the image that the spec of a container named when it was created.
	annotationImage = "coppice.dev/image"
	// annotationMessagePolicy is the terminationMessagePolicy of a container. The kubelet has the same annotation.
	annotationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
)

// podLabels returns the labels of everything that belongs to a pod.
func podLabels(of *corev1.Pod, own map[string]string) map[string]string {
	labels := map[string]string{labelPodName: of.Name, labelPodNamespace: of.Namespace, labelPodUID: string(of.UID)}
	maps.Copy(labels, own)
	return labels
}

func backoffText(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
