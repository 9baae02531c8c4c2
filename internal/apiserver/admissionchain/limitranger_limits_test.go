package admissionchain

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
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

func requirements(t *testing.T, requested, limited map[string]string) corev1.ResourceRequirements {
	t.Helper()
	return corev1.ResourceRequirements{Requests: amounts(t, requested), Limits: amounts(t, limited)}
}

func limitsOf(items ...corev1.LimitRangeItem) *corev1.LimitRange {
	return &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: items}}
}

func TestSetDefaults(t *testing.T) {
	limits := limitsOf(
		corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Default: amounts(t, map[string]string{"cpu": "2", "memory": "2Gi"}), DefaultRequest: amounts(t, map[string]string{"cpu": "1"})},
		corev1.LimitRangeItem{Type: corev1.LimitTypePersistentVolumeClaim, Default: amounts(t, map[string]string{"storage": "1Gi"})},
	)
	own := requirements(t, map[string]string{"cpu": "500m"}, map[string]string{"memory": "1Gi"})
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Containers:     []corev1.Container{{Name: "bare"}, {Name: "partly", Resources: own}},
		InitContainers: []corev1.Container{{Name: "first", Resources: requirements(t, map[string]string{"cpu": "1"}, map[string]string{"cpu": "1", "memory": "1"})}, {Name: "second"}},
	}}
	shared := own.Limits
	setLimitDefaults(limits, pod)
	for i, want := range []corev1.ResourceRequirements{
		requirements(t, map[string]string{"cpu": "1"}, map[string]string{"cpu": "2", "memory": "2Gi"}),
		requirements(t, map[string]string{"cpu": "500m"}, map[string]string{"cpu": "2", "memory": "1Gi"}),
	} {
		if got := pod.Spec.Containers[i].Resources; !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("container %d: %v", i, got)
		}
	}
	if got, want := pod.Spec.InitContainers[1].Resources, requirements(t, map[string]string{"cpu": "1"}, map[string]string{"cpu": "2", "memory": "2Gi"}); !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("init container: %v", got)
	}
	if len(shared) != 1 {
		t.Errorf("a list that others may have was changed to %v", shared)
	}
	want := "LimitRanger plugin set: cpu request for container bare; cpu, memory limit for container bare; " +
		"cpu limit for container partly; cpu request for init container second; cpu, memory limit for init container second"
	if diff := cmp.Diff(want, pod.Annotations["kubernetes.io/limit-ranger"]); diff != "" {
		t.Error(diff)
	}
	once := pod.DeepCopy()
	setLimitDefaults(limits, pod) // admission calls it again after webhooks
	if !equality.Semantic.DeepEqual(once, pod) {
		t.Errorf("the second time changes it: %s", cmp.Diff(once, pod))
	}
	complete := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{*pod.Spec.Containers[0].DeepCopy()}}}
	setLimitDefaults(limits, complete)
	if len(complete.Annotations) > 0 {
		t.Errorf("nothing was left out, annotated with %v", complete.Annotations)
	}
}

func TestCheckPod(t *testing.T) {
	cpu := func(text string) corev1.ResourceList { return amounts(t, map[string]string{"cpu": text}) }
	item := func(of corev1.LimitType, least, most, ratio corev1.ResourceList) *corev1.LimitRange {
		return limitsOf(corev1.LimitRangeItem{Type: of, Min: least, Max: most, MaxLimitRequestRatio: ratio})
	}
	pod := func(requested, limited map[string]string) *corev1.Pod {
		c := corev1.Container{Name: "a", Resources: requirements(t, requested, limited)}
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{c, c}}}
	}
	one, none := map[string]string{"cpu": "1"}, map[string]string(nil)
	initial := pod(one, one)
	initial.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: requirements(t, map[string]string{"cpu": "3"}, map[string]string{"cpu": "3"})}}
	const container, whole = corev1.LimitTypeContainer, corev1.LimitTypePod
	for name, test := range map[string]struct {
		limits *corev1.LimitRange
		pod    *corev1.Pod
		want   string
	}{
		"within":               {item(container, cpu("1"), cpu("1"), cpu("1")), pod(one, one), ""},
		"no request":           {item(container, cpu("1"), nil, nil), pod(none, none), "minimum cpu usage per Container is 1.  No request is specified"},
		"too small a request":  {item(container, cpu("2"), nil, nil), pod(one, none), "minimum cpu usage per Container is 2, but request is 1"},
		"too small a limit":    {item(container, cpu("1"), nil, nil), pod(one, map[string]string{"cpu": "500m"}), "minimum cpu usage per Container is 1, but limit is 500m"},
		"no limit":             {item(container, nil, cpu("1"), nil), pod(one, none), "maximum cpu usage per Container is 1.  No limit is specified"},
		"too large a limit":    {item(container, nil, cpu("500m"), nil), pod(one, one), "maximum cpu usage per Container is 500m, but limit is 1"},
		"too large a request":  {item(container, nil, cpu("1"), nil), pod(map[string]string{"cpu": "2"}, one), "maximum cpu usage per Container is 1, but request is 2"},
		"no request for ratio": {item(container, nil, nil, cpu("2")), pod(none, one), "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0"},
		"no limit for ratio":   {item(container, nil, nil, cpu("2")), pod(one, none), "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0"},
		"too large a ratio": {
			item(container, nil, nil, cpu("2")), pod(one, map[string]string{"cpu": "2500m"}), "cpu max limit to request ratio per Container is 2, but provided ratio is 2.500000",
		},
		"exactly the ratio":   {item(container, nil, nil, cpu("3")), pod(map[string]string{"cpu": "300m"}, map[string]string{"cpu": "900m"}), ""},
		"containers together": {item(whole, nil, cpu("1"), nil), pod(one, one), "maximum cpu usage per Pod is 1, but limit is 2"},
		"an init container":   {item(whole, nil, cpu("2"), nil), initial, "maximum cpu usage per Pod is 2, but limit is 3"},
		"several": {
			item(container, amounts(t, map[string]string{"memory": "1", "cpu": "2"}), nil, nil), pod(one, one),
			"[minimum cpu usage per Container is 2, but request is 1, minimum memory usage per Container is 1.  No request is specified]",
		},
		"of volume claims": {item(corev1.LimitTypePersistentVolumeClaim, cpu("9"), nil, nil), pod(none, none), ""},
	} {
		t.Run(name, func(t *testing.T) { wantLimitError(t, checkPodLimits(test.limits, test.pod), test.want) })
	}
}

func TestCheckClaim(t *testing.T) {
	storage := func(text string) corev1.ResourceList { return amounts(t, map[string]string{"storage": text}) }
	limits := limitsOf(corev1.LimitRangeItem{Type: corev1.LimitTypePersistentVolumeClaim, Min: storage("1Gi"), Max: storage("2Gi")},
		corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: storage("1")})
	for size, want := range map[string]string{
		"1Gi": "", "2Gi": "",
		"1Mi": "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi",
		"3Gi": "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi",
	} {
		t.Run(size, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
				Resources: corev1.VolumeResourceRequirements{Requests: storage(size), Limits: storage("9Gi")},
			}}
			wantLimitError(t, checkClaimLimits(limits, claim), want)
		})
	}
}

func wantLimitError(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
