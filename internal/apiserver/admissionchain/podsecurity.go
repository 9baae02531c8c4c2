package admissionchain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics/legacyregistry"
	podsecurityadmission "k8s.io/pod-security-admission/admission"
	"k8s.io/pod-security-admission/admission/api/load"
	podsecurityapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/metrics"
	"k8s.io/pod-security-admission/policy"
)

// podSecurityName is upstream's name of the plug-in.
const podSecurityName = "PodSecurity"

// podsOfOneList is the number of pods that are decoded at a time when the labels of a namespace change.
const podsOfOneList = 500

// podSecurity enforces the Pod Security Standard that the labels of a namespace name, and warns of
// templates that violate it. k8s.io/pod-security-admission decides.
type podSecurity struct {
	*admission.Handler

	standards *podsecurityadmission.Admission
}

// newPodSecurity returns the plug-in. Without a configuration it uses the default one.
func newPodSecurity(config io.Reader, client kubernetes.Interface, shared informers.SharedInformerFactory) (*podSecurity, error) {
	configuration, err := load.LoadFromReader(config)
	if err != nil {
		return nil, fmt.Errorf("read the configuration of %s: %w", podSecurityName, err)
	}
	checks, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, fmt.Errorf("set up the checks of %s: %w", podSecurityName, err)
	}
	p := &podSecurity{
		Handler: admission.NewHandler(admission.Create, admission.Update),
		standards: &podsecurityadmission.Admission{
			Configuration: configuration, Evaluator: checks, Metrics: evaluations(), PodSpecExtractor: podsecurityadmission.DefaultPodSpecExtractor{},
			NamespaceGetter: podsecurityadmission.NamespaceGetterFromListerAndClient(shared.Core().V1().Namespaces().Lister(), client),
			PodLister:       podPages{client},
		},
	}
	if err := p.standards.CompleteConfiguration(); err != nil {
		return nil, fmt.Errorf("complete the configuration of %s: %w", podSecurityName, err)
	}
	if err := p.standards.ValidateConfiguration(); err != nil {
		return nil, fmt.Errorf("check the configuration of %s: %w", podSecurityName, err)
	}
	return p, nil
}

// evaluations returns the metrics of the plug-in, which all servers of a process share.
var evaluations = sync.OnceValue(func() metrics.Recorder { //nolint:gochecknoglobals // the registry of metrics is one, too
	recorder := metrics.NewPrometheusRecorder(podsecurityapi.GetAPIVersion())
	recorder.MustRegister(legacyregistry.MustRegister)
	return recorder
})

// Validate implements admission.ValidationInterface.
func (p *podSecurity) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isOfPods(a) {
		return nil
	}
	response := p.standards.Validate(ctx, podSecurityAttributes{a})
	for _, text := range response.Warnings {
		warning.AddWarning(ctx, "", text)
	}
	for key, value := range response.AuditAnnotations {
		audit.AddAuditAnnotation(ctx, podsecurityapi.AuditAnnotationPrefix+key, value)
	}
	if response.Allowed {
		return nil
	}
	refusal := apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), errors.New("not allowed by "+podSecurityName))
	if response.Result != nil {
		refusal.ErrStatus = *response.Result.DeepCopy()
		refusal.ErrStatus.Status = metav1.StatusFailure
	}
	return refusal
}

// isOfPods reports whether a request is for a namespace, a pod, or an object with a pod template, in any group
// version.
func isOfPods(a admission.Attributes) bool {
	switch a.GetObject().(type) {
	case *corev1.Namespace, *corev1.Pod, *corev1.PodTemplate, *corev1.ReplicationController,
		*appsv1.DaemonSet, *appsv1.Deployment, *appsv1.ReplicaSet, *appsv1.StatefulSet, *batchv1.CronJob, *batchv1.Job:
		return true
	}
	return false
}

// podSecurityAttributes presents a request to k8s.io/pod-security-admission.
type podSecurityAttributes struct{ admission.Attributes }

// GetObject implements podsecurityapi.Attributes.
func (a podSecurityAttributes) GetObject() (runtime.Object, error) {
	return a.Attributes.GetObject(), nil
}

// GetOldObject implements podsecurityapi.Attributes.
func (a podSecurityAttributes) GetOldObject() (runtime.Object, error) {
	return a.Attributes.GetOldObject(), nil
}

// GetOperation implements podsecurityapi.Attributes.
func (a podSecurityAttributes) GetOperation() admissionv1.Operation {
	return admissionv1.Operation(a.Attributes.GetOperation())
}

// GetUserName implements podsecurityapi.Attributes.
func (a podSecurityAttributes) GetUserName() string { return a.GetUserInfo().GetName() }

// podPages lists the pods of a namespace page by page. An informer would keep all pods of the cluster in
// memory for label changes, which are rare.
type podPages struct{ client kubernetes.Interface }

// ListPods implements podsecurityadmission.PodLister. It returns only the fields that the checks read.
func (l podPages) ListPods(ctx context.Context, namespace string) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	for options := (metav1.ListOptions{Limit: podsOfOneList}); ; {
		page, err := l.client.CoreV1().Pods(namespace).List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			page.Items[i].ManagedFields = nil
			pods = append(pods, &corev1.Pod{ObjectMeta: page.Items[i].ObjectMeta, Spec: page.Items[i].Spec})
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return pods, nil
		}
	}
}
