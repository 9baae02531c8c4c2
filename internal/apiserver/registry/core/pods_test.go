package core

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestBindingOfADeletedPod(t *testing.T) {
	now := metav1.NewTime(time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC))
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", DeletionTimestamp: &now}}
	if err := bindPod(p, &corev1.Binding{Target: corev1.ObjectReference{Name: "n1"}}, now); err == nil || p.Spec.NodeName != "" {
		t.Errorf("bound to %q, %v", p.Spec.NodeName, err)
	}
}

// TestBindingMakesNoMirrorPod checks that a binding changes no annotation that an update of the pod could not change.
func TestBindingMakesNoMirrorPod(t *testing.T) {
	for key, want := range map[string]string{
		corev1.MirrorPodAnnotationKey:                                   "may not add mirror pod annotation",
		corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "a": "may not add AppArmor annotations",
		corev1.PodDeletionCost:                                          "must be a 32bit integer",
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}}
		binding := &corev1.Binding{Target: corev1.ObjectReference{Name: "n1"}}
		binding.Annotations = map[string]string{key: "x"}
		err := bindPod(p, binding, metav1.Now())
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) || p.Spec.NodeName != "" || len(p.Annotations) != 1 {
			t.Errorf("%s: %v, and the pod has %v", key, err, p.Annotations)
		}
	}
}

// TestBoundPodHasTheValuesOfTheBinding checks that a bound pod has the values of the binding, and no nominated node.
func TestBoundPodHasTheValuesOfTheBinding(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web", "zone": "mine"}}, Status: corev1.PodStatus{NominatedNodeName: "n2"}}
	binding := &corev1.Binding{Target: corev1.ObjectReference{Name: "n1"}}
	binding.Labels = map[string]string{"zone": "z1"}
	if err := bindPod(p, binding, metav1.Now()); err != nil || p.Spec.NodeName != "n1" || p.Status.NominatedNodeName != "" {
		t.Errorf("%+v, %v", p, err)
	}
	if p.Labels["app"] != "web" || p.Labels["zone"] != "z1" {
		t.Errorf("labels %v", p.Labels)
	}
}

func TestTolerationsOfLostNodes(t *testing.T) {
	const notReady, unreachable = corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable
	for name, test := range map[string]struct {
		given []corev1.Toleration
		added []string
	}{
		"none":              {nil, []string{notReady, unreachable}},
		"another":           {[]corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}, []string{notReady, unreachable}},
		"one of them":       {[]corev1.Toleration{{Key: notReady, Operator: corev1.TolerationOpExists}}, []string{unreachable}},
		"of another effect": {[]corev1.Toleration{{Key: notReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}, []string{notReady, unreachable}},
		"everything":        {[]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, nil},
	} {
		var added []string
		for _, got := range tolerateLostNodes(test.given)[len(test.given):] {
			added = append(added, got.Key)
			if *got.TolerationSeconds != 300 || got.Effect != corev1.TaintEffectNoExecute {
				t.Errorf("%s: %+v", name, got)
			}
		}
		if strings.Join(added, " ") != strings.Join(test.added, " ") {
			t.Errorf("%s: adds %v, want %v", name, added, test.added)
		}
	}
}

// TestStatusWithoutClaimsKeepsThem checks that a node that does not know the claims of a pod does not remove them.
func TestStatusWithoutClaimsKeepsThem(t *testing.T) {
	old := &corev1.Pod{Status: corev1.PodStatus{
		ResourceClaimStatuses:       []corev1.PodResourceClaimStatus{{Name: "gpu"}},
		ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "a"},
	}}
	p := &corev1.Pod{}
	completeStatus(p, old)
	if len(p.Status.ResourceClaimStatuses) != 1 || p.Status.ExtendedResourceClaimStatus == nil {
		t.Errorf("the status has %v and %v", p.Status.ResourceClaimStatuses, p.Status.ExtendedResourceClaimStatus)
	}
	p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{}
	if completeStatus(p, old); len(p.Status.ResourceClaimStatuses) != 0 {
		t.Errorf("the claims %v are back", p.Status.ResourceClaimStatuses)
	}
}

func TestRefusalsOfNewPodsNameThem(t *testing.T) {
	for want, p := range map[string]*corev1.Pod{
		`pods "web" is forbidden`:     {ObjectMeta: metav1.ObjectMeta{Name: "web", GenerateName: "w-"}},
		`pods "w-" is forbidden`:      {ObjectMeta: metav1.ObjectMeta{GenerateName: "w-"}},
		`pods "Unknown" is forbidden`: {},
	} {
		if got := podForbidden(p, "no").Error(); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The name of the scheduler's claim is checked, but it may be as long as a request: it is not joined with each of the claim's requests.
func TestLongNameOfAnExtendedClaim(t *testing.T) {
	const long, many = 1 << 20, 100
	requests := corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	old := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests}}}}}
	p := old.DeepCopy()
	claim := &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: strings.Repeat("a", long)}
	for n := range many {
		claim.RequestMappings = append(claim.RequestMappings, corev1.ContainerExtendedResourceRequest{
			ContainerName: "c", ResourceName: "example.com/gpu", RequestName: fmt.Sprintf("r-%d", n),
		})
	}
	p.Status.ExtendedResourceClaimStatus = claim
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", AllocatedResourcesStatus: []corev1.ResourceStatus{{Name: "claim:a/r-1"}}}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	errs := validatePodStatus(p, old)
	runtime.ReadMemStats(&after)
	if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 20*long {
		t.Errorf("it has taken %d bytes", bytes)
	}
	if !slices.ContainsFunc(errs, func(err *field.Error) bool {
		return err.Field == "status.extendedResourceClaimStatus.resourceClaimName"
	}) {
		t.Errorf("the name is not refused: %v", errs.ToAggregate())
	}
}
