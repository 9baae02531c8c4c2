package quota

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// admissionOf returns a request about a pod.
func admissionOf(operation admission.Operation, subresource string, pod, old *corev1.Pod) admission.Attributes {
	var obj, before runtime.Object
	if pod != nil {
		obj = pod
	}
	if old != nil {
		before = old
	}
	return admission.NewAttributesRecord(obj, before, corev1.SchemeGroupVersion.WithKind("Pod"), "ns", "p",
		corev1.SchemeGroupVersion.WithResource("pods"), subresource, operation, nil, false, nil)
}

// counting returns a quota whose status is known.
func counting(t *testing.T, hard, used map[string]string, scopes ...corev1.ResourceQuotaScope) corev1.ResourceQuota {
	t.Helper()
	return corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q"},
		Spec:       corev1.ResourceQuotaSpec{Hard: amounts(t, hard), Scopes: scopes},
		Status:     corev1.ResourceQuotaStatus{Hard: amounts(t, hard), Used: amounts(t, used)},
	}
}

// What the frame of k8s.io/apiserver makes of the evaluators.
func TestRequestsOverTheQuotaAreRefused(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{with(t, "a", map[string]string{"cpu": "2"}, nil)}}}
	for name, test := range map[string]struct {
		quota corev1.ResourceQuota
		want  string // the refusal; "" if it is charged
		used  map[string]string
	}{
		"charged": {
			counting(t, map[string]string{"pods": "2", "requests.cpu": "4"}, map[string]string{"pods": "1", "requests.cpu": "1"}),
			"",
			map[string]string{"pods": "2", "requests.cpu": "3"},
		},
		"exceeded": {
			counting(t, map[string]string{"pods": "2", "cpu": "4"}, map[string]string{"pods": "2", "cpu": "3"}),
			`pods "p" is forbidden: exceeded quota: q, requested: cpu=2,pods=1, used: cpu=3,pods=2, limited: cpu=4,pods=2`, nil,
		},
		"not specified": {
			counting(t, map[string]string{"limits.cpu": "4"}, map[string]string{"limits.cpu": "0"}),
			`pods "p" is forbidden: failed quota: q: must specify limits.cpu for: a`, nil,
		},
		"not counted yet": {
			counting(t, map[string]string{"pods": "2"}, nil),
			`pods "p" is forbidden: status unknown for quota: q, resources: pods`, nil,
		},
		"out of scope": {
			counting(t, map[string]string{"pods": "0"}, map[string]string{"pods": "0"}, corev1.ResourceQuotaScopeTerminating),
			"",
			map[string]string{"pods": "0"},
		},
		"about other resources": {
			counting(t, map[string]string{"services": "0"}, map[string]string{"services": "0"}), "", map[string]string{"services": "0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			charged, err := resourcequota.CheckRequest([]corev1.ResourceQuota{test.quota}, admissionOf(admission.Create, "", pod, nil), pods(nil), nil)
			if test.want == "" {
				if err != nil || !quotav1.Equals(charged[0].Status.Used, amounts(t, test.used)) {
					t.Errorf("charged %+v, %v", charged, err)
				}
				return
			}
			if !apierrors.IsForbidden(err) || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// usageOf counts all objects of a namespace for a quota.
func usageOf(t *testing.T, q corev1.ResourceQuota, objects ...runtime.Object) corev1.ResourceList {
	t.Helper()
	list := func(resource schema.GroupResource, _ string) ([]runtime.Object, error) {
		return slices.DeleteFunc(slices.Clone(objects), func(obj runtime.Object) bool {
			switch obj.(type) {
			case *corev1.Pod:
				return resource.Resource != "pods"
			case *corev1.Service:
				return resource.Resource != "services"
			}
			return resource.Resource != "persistentvolumeclaims"
		}), nil
	}
	registry := generic.NewRegistry(Evaluators(list))
	registry.Add(Count(corev1.Resource("secrets"), func(string) (int, error) { return 3, nil }))
	used, err := quotav1.CalculateUsage("ns", q.Spec.Scopes, q.Spec.Hard, registry, q.Spec.ScopeSelector)
	if err != nil {
		t.Fatal(err)
	}
	return used
}

func TestUsageOfAll(t *testing.T) {
	plain := &corev1.Pod{}
	terminating := &corev1.Pod{Spec: corev1.PodSpec{ActiveDeadlineSeconds: new(int64(1))}}
	finished := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}
	service := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: make([]corev1.ServicePort, 2)}}
	for name, test := range map[string]struct {
		quota corev1.ResourceQuota
		want  map[string]string
	}{
		"pods": {
			counting(t, map[string]string{"pods": "9", "count/pods": "9", "cpu": "9"}, nil),
			map[string]string{"pods": "2", "count/pods": "3", "cpu": "0"},
		},
		"pods of a scope": {
			counting(t, map[string]string{"pods": "9"}, nil, corev1.ResourceQuotaScopeTerminating), map[string]string{"pods": "1"},
		},
		"services":       {counting(t, map[string]string{"services": "9", "services.nodeports": "9"}, nil), map[string]string{"services": "1", "services.nodeports": "2"}},
		"none":           {counting(t, map[string]string{"requests.storage": "9"}, nil), map[string]string{"requests.storage": "0"}},
		"numbers":        {counting(t, map[string]string{"secrets": "9", "count/secrets": "9"}, nil), map[string]string{"secrets": "3", "count/secrets": "3"}},
		"unknown":        {counting(t, map[string]string{"count/widgets.example.com": "9", "secrets": "1"}, nil), map[string]string{"secrets": "3"}},
		"numbers scoped": {counting(t, map[string]string{"secrets": "9"}, nil, corev1.ResourceQuotaScopeBestEffort), map[string]string{"secrets": "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := usageOf(t, test.quota, plain, terminating, finished, service)
			if want := amounts(t, test.want); !quotav1.Equals(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// A resource whose objects are not known is left out, and reported.
func TestUsageOfUnknownObjects(t *testing.T) {
	registry := generic.NewRegistry(nil)
	registry.Add(Count(corev1.Resource("secrets"), func(string) (int, error) { return 0, errors.New("not yet") }))
	used, err := quotav1.CalculateUsage("ns", nil, amounts(t, map[string]string{"secrets": "1"}), registry, nil)
	if err == nil || len(used) != 0 {
		t.Errorf("used %v, error %v", used, err)
	}
}

func TestResourcesOfAQuotaAreThoseThatAreCounted(t *testing.T) {
	hard := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{
		"pods", "requests.cpu", "limits.memory", "hugepages-2Mi", "requests.hugepages-2Mi", "requests.example.com/gpu", "count/pods",
		"services.loadbalancers", "requests.storage", "gold.storageclass.storage.k8s.io/requests.storage",
		"secrets", "count/secrets", "configmaps", "count/deployments.apps", "count/widgets.example.com",
		"count/events", "count/events.events.k8s.io", "count/bindings", "nonsense",
	} {
		hard[name] = number(1)
	}
	var got []string
	for _, resource := range Resources(hard) {
		got = append(got, resource.String())
	}
	want := []string{"configmaps", "persistentvolumeclaims", "pods", "secrets", "services", "deployments.apps", "widgets.example.com"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Names that are about one resource only must not be taken by the evaluator of another.
func TestNamesAreAboutOneResource(t *testing.T) {
	for _, name := range []corev1.ResourceName{
		"pods", "cpu", "requests.ephemeral-storage", "requests.deviceclass.resource.kubernetes.io/gpu", "services.nodeports", "persistentvolumeclaims",
		"requests.storage", "gold.storageclass.storage.k8s.io/persistentvolumeclaims", "count/services", "count/persistentvolumeclaims",
	} {
		n := 0
		for _, e := range Evaluators(nil) {
			n += len(e.MatchingResources([]corev1.ResourceName{name}))
		}
		if n != 1 {
			t.Errorf("%s is about %d resources", name, n)
		}
	}
}
