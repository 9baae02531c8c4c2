package quota

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
)

// amounts returns quantities by name.
func amounts(t *testing.T, texts map[string]string) corev1.ResourceList {
	t.Helper()
	list := corev1.ResourceList{}
	for name, text := range texts {
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			t.Fatal(err)
		}
		list[corev1.ResourceName(name)] = quantity
	}
	return list
}

// with returns a container with requests and limits.
func with(t *testing.T, name string, requested, limited map[string]string) corev1.Container {
	t.Helper()
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: amounts(t, requested), Limits: amounts(t, limited)}}
}

func TestPodUsage(t *testing.T) {
	now, grace, always := metav1.Now(), int64(0), corev1.ContainerRestartPolicyAlways
	sidecar := with(t, "side", map[string]string{"cpu": "100m"}, nil)
	sidecar.RestartPolicy = &always
	small := with(t, "a", map[string]string{"cpu": "1", "memory": "1Gi"}, map[string]string{"cpu": "2"})
	for name, test := range map[string]struct {
		pod  corev1.Pod
		want map[string]string
	}{
		"nothing requested": {corev1.Pod{}, map[string]string{"pods": "1", "count/pods": "1"}},
		"requests and limits": {
			corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{small, small}}},
			map[string]string{
				"pods": "1", "count/pods": "1", "cpu": "2", "requests.cpu": "2", "limits.cpu": "4",
				"memory": "2Gi", "requests.memory": "2Gi",
			},
		},
		"an init container that requests more": {
			corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{small}, InitContainers: []corev1.Container{
				sidecar, with(t, "init", map[string]string{"cpu": "3"}, nil),
			}}},
			map[string]string{
				"pods": "1", "count/pods": "1", "cpu": "3100m", "requests.cpu": "3100m", "limits.cpu": "2",
				"memory": "1Gi", "requests.memory": "1Gi",
			},
		},
		"devices, huge pages and ephemeral storage": {
			corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{with(t, "a",
				map[string]string{"example.com/gpu": "2", "hugepages-2Mi": "4Mi", "ephemeral-storage": "1Gi"},
				map[string]string{"example.com/gpu": "2", "hugepages-2Mi": "4Mi", "ephemeral-storage": "2Gi"})}}},
			map[string]string{
				"pods": "1", "count/pods": "1", "requests.example.com/gpu": "2", "hugepages-2Mi": "4Mi", "requests.hugepages-2Mi": "4Mi",
				"ephemeral-storage": "1Gi", "requests.ephemeral-storage": "1Gi", "limits.ephemeral-storage": "2Gi",
			},
		},
		"finished": {
			corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{small}}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}},
			map[string]string{"count/pods": "1"},
		},
		"failed": {
			corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{small}}, Status: corev1.PodStatus{Phase: corev1.PodFailed}},
			map[string]string{"count/pods": "1"},
		},
		"marked, and held by a finalizer": {
			corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now, DeletionGracePeriodSeconds: &grace}},
			map[string]string{"pods": "1", "count/pods": "1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got, want := podUsage(&test.pod), amounts(t, test.want); !quotav1.Equals(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestPodConstraints(t *testing.T) {
	full := with(t, "full", map[string]string{"cpu": "1", "memory": "1"}, map[string]string{"cpu": "1", "memory": "1"})
	bare := corev1.Container{Name: "bare"}
	podLevel := corev1.PodSpec{Containers: []corev1.Container{bare}, Resources: &corev1.ResourceRequirements{Requests: amounts(t, map[string]string{"cpu": "1"})}}
	for name, test := range map[string]struct {
		spec     corev1.PodSpec
		required []corev1.ResourceName
		want     string
	}{
		"all specified": {corev1.PodSpec{Containers: []corev1.Container{full}}, []corev1.ResourceName{"cpu", "limits.memory", "pods"}, ""},
		"containers that specify nothing": {
			corev1.PodSpec{Containers: []corev1.Container{full, bare}, InitContainers: []corev1.Container{{Name: "an-init"}}},
			[]corev1.ResourceName{"requests.memory", "limits.cpu", "pods"},
			"must specify limits.cpu for: an-init,bare; requests.memory for: an-init,bare",
		},
		"others need not be specified": {
			corev1.PodSpec{Containers: []corev1.Container{bare}},
			[]corev1.ResourceName{"requests.ephemeral-storage", "requests.example.com/gpu", "hugepages-2Mi", "pods"},
			"",
		},
		"specified for the pod": {podLevel, []corev1.ResourceName{"cpu", "memory"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := podConstraints(test.required, &corev1.Pod{Spec: test.spec}); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestHandlesPod(t *testing.T) {
	plain, terminating := &corev1.Pod{}, &corev1.Pod{Spec: corev1.PodSpec{ActiveDeadlineSeconds: new(int64(60))}}
	for _, test := range []struct {
		operation   admission.Operation
		subresource string
		pod, old    *corev1.Pod
		want        bool
	}{
		{admission.Create, "", plain, nil, true},
		{admission.Update, "", plain, plain, false},
		{admission.Update, "", terminating, plain, true},
		{admission.Update, "status", terminating, plain, false},
		{admission.Update, "resize", plain, plain, true},
		{admission.Create, "eviction", plain, nil, false},
		{admission.Delete, "", nil, plain, false},
	} {
		a := admissionOf(test.operation, test.subresource, test.pod, test.old)
		if got := pods(nil).Handles(a); got != test.want {
			t.Errorf("%s %q: %t", test.operation, test.subresource, got)
		}
	}
	binding := admission.NewAttributesRecord(&corev1.Binding{}, nil, corev1.SchemeGroupVersion.WithKind("Binding"), "ns", "p",
		corev1.SchemeGroupVersion.WithResource("pods"), "", admission.Create, nil, false, nil)
	if pods(nil).Handles(binding) {
		t.Error("a Binding is counted as a pod")
	}
}
