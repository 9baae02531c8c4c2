package admissionchain

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
)

// limitRangerName is Kubernetes' name of the plug-in.
const limitRangerName = "LimitRanger"

// limitRanger enforces LimitRanges. It sets the defaults of the containers of a new pod (Admit), and refuses pods and
// volume claims outside the limits of their namespace (Validate). The rules are in limitranger_limits.go, which is
// pure.
type limitRanger struct {
	*admission.Handler
	client kubernetes.Interface
	lister corev1listers.LimitRangeLister
	synced func() bool
}

var (
	_ admission.MutationInterface   = (*limitRanger)(nil)
	_ admission.ValidationInterface = (*limitRanger)(nil)
)

func newLimitRanger(client kubernetes.Interface, shared informers.SharedInformerFactory) *limitRanger {
	ranges := shared.Core().V1().LimitRanges()
	return &limitRanger{admission.NewHandler(admission.Create, admission.Update), client, ranges.Lister(), ranges.Informer().HasSynced}
}

// Admit implements admission.MutationInterface.
func (p *limitRanger) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return p.each(ctx, a, func(limits *corev1.LimitRange, obj runtime.Object) error {
		if pod, ok := obj.(*corev1.Pod); ok {
			setLimitDefaults(limits, pod)
		}
		return nil
	})
}

// Validate implements admission.ValidationInterface.
func (p *limitRanger) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return p.each(ctx, a, func(limits *corev1.LimitRange, obj runtime.Object) error {
		switch obj := obj.(type) {
		case *corev1.Pod:
			return checkPodLimits(limits, obj)
		case *corev1.PersistentVolumeClaim:
			return checkClaimLimits(limits, obj)
		}
		return nil
	})
}

// each calls apply for the LimitRanges of the namespace. An error of apply refuses the request.
func (p *limitRanger) each(ctx context.Context, a admission.Attributes, apply func(*corev1.LimitRange, runtime.Object) error) error {
	if !isLimited(a) || isBeingDeleted(a.GetOldObject()) {
		return nil
	}
	ranges, err := p.ranges(ctx, a.GetNamespace())
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("unable to %s %v at this time because there was an error enforcing limit ranges: %w",
			a.GetOperation(), a.GetResource(), err))
	}
	for _, limits := range ranges {
		if err := apply(limits, a.GetObject()); err != nil {
			return admission.NewForbidden(a, err)
		}
	}
	return nil
}

// ranges returns the LimitRanges of a namespace: live ones, until the informer has synced.
func (p *limitRanger) ranges(ctx context.Context, namespace string) ([]*corev1.LimitRange, error) {
	if p.synced() {
		return p.lister.LimitRanges(namespace).List(labels.Everything())
	}
	live, err := p.client.CoreV1().LimitRanges(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var ranges []*corev1.LimitRange
	for i := range live.Items {
		ranges = append(ranges, &live.Items[i])
	}
	return ranges, nil
}

// isLimited reports whether a request may set requests or limits that a LimitRange bounds. A pod's requests
// and limits are fixed when it is created, except for the subresource resize.
func isLimited(a admission.Attributes) bool {
	switch a.GetResource().GroupResource() {
	case corev1.Resource("pods"):
		return a.GetSubresource() == "" && a.GetOperation() == admission.Create ||
			a.GetSubresource() == "resize" && a.GetOperation() == admission.Update
	case corev1.Resource("persistentvolumeclaims"):
		return a.GetSubresource() == ""
	}
	return false
}

// isBeingDeleted reports whether an object is being deleted, so that it can only lose finalizers. old is
// nil for a creation.
func isBeingDeleted(old runtime.Object) bool {
	if old == nil {
		return false
	}
	m, err := meta.Accessor(old)
	return err == nil && m.GetDeletionTimestamp() != nil
}
