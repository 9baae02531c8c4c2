package inventory

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// Pod holds the fields of a pod, beyond its metadata, that matter to a deletion: a thirtieth of it, which
// saves memory in a cluster with many pods.
type Pod struct {
	Node string
	// Grace is the pod's own grace period.
	Grace time.Duration
	// Sleep is the longest sleep of a preStop hook, before the kubelet asks the container to end.
	Sleep  time.Duration
	Claims []Claim
	Phase  corev1.PodPhase
	Ready  bool
}

// Claim is a PersistentVolumeClaim that a pod uses.
type Claim struct {
	Name string
	// Ephemeral is true if the claim is made for a volume of the pod, and named after both.
	Ephemeral bool
}

// NewPod returns the Pod of an API object. It shares no memory with the object.
func NewPod(pod *corev1.Pod) *Pod {
	ready := pods.Condition(pod, corev1.PodReady)
	p := &Pod{
		Node:  strings.Clone(pod.Spec.NodeName),
		Grace: corev1.DefaultTerminationGracePeriodSeconds * time.Second,
		Phase: corev1.PodPhase(strings.Clone(string(pod.Status.Phase))),
		Ready: ready != nil && ready.Status == corev1.ConditionTrue,
	}
	if grace := pod.Spec.TerminationGracePeriodSeconds; grace != nil {
		p.Grace = pods.Seconds(*grace)
	}
	for n := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[n]; {
		case v.PersistentVolumeClaim != nil:
			p.Claims = append(p.Claims, Claim{Name: strings.Clone(v.PersistentVolumeClaim.ClaimName)})
		case v.Ephemeral != nil:
			p.Claims = append(p.Claims, Claim{Name: pod.Name + "-" + v.Name, Ephemeral: true})
		}
	}
	for n := range pod.Spec.Containers {
		if l := pod.Spec.Containers[n].Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Sleep != nil {
			p.Sleep = max(p.Sleep, pods.Seconds(l.PreStop.Sleep.Seconds))
		}
	}
	return p
}

// Object returns the API object with this metadata, for packages that work on API objects.
func (p *Pod) Object(m metav1.ObjectMeta) corev1.Pod {
	grace := int64(p.Grace / time.Second)
	pod := corev1.Pod{
		ObjectMeta: m,
		Spec:       corev1.PodSpec{NodeName: p.Node, TerminationGracePeriodSeconds: &grace},
		Status:     corev1.PodStatus{Phase: p.Phase},
	}
	for _, c := range p.Claims {
		v := corev1.Volume{Name: strings.TrimPrefix(c.Name, m.Name+"-")}
		if c.Ephemeral {
			v.Ephemeral = &corev1.EphemeralVolumeSource{}
		} else {
			v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.Name}
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, v)
	}
	return pod
}

// IsFinished reports whether the pod has ended permanently.
func (p *Pod) IsFinished() bool {
	return pods.IsFinished(&corev1.Pod{Status: corev1.PodStatus{Phase: p.Phase}})
}

// IsServing reports whether the pod runs and is ready.
func (p *Pod) IsServing() bool { return p.Phase == corev1.PodRunning && p.Ready }

// Uses reports whether the pod uses a PersistentVolumeClaim of its namespace.
func (p *Pod) Uses(claim string) bool {
	return slices.ContainsFunc(p.Claims, func(c Claim) bool { return c.Name == claim })
}
