package kubelet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestChooseContainer(t *testing.T) {
	pod := func(initial []string, names ...string) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
		for _, name := range names {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
		}
		for _, name := range initial {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: name})
		}
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
		return pod
	}
	for name, test := range map[string]struct {
		pod       *corev1.Pod
		requested string
		want      string
		wrong     string
	}{
		"the only one":             {pod: pod(nil, "app"), want: "app"},
		"the only one that stays":  {pod: pod([]string{"prepare"}, "app"), want: "app"},
		"one of several":           {pod: pod(nil, "app", "side"), requested: "side", want: "side"},
		"an init container":        {pod: pod([]string{"prepare"}, "app"), requested: "prepare", want: "prepare"},
		"an ephemeral one":         {pod: pod(nil, "app"), requested: "debug", want: "debug"},
		"none of several":          {pod: pod(nil, "app", "side"), wrong: "a container name must be specified for pod web, choose one of: [app side]"},
		"none, with init ones":     {pod: pod([]string{"a", "b"}, "app", "side"), wrong: "a container name must be specified for pod web, choose one of: [app side] or one of the init containers: [a b]"},
		"one that does not exist":  {pod: pod(nil, "app"), requested: "other", wrong: "container other is not valid for pod web"},
		"of a name with a capital": {pod: pod(nil, "app"), requested: "App", wrong: "container App is not valid for pod web"},
	} {
		got, err := chooseContainer(test.pod, test.requested)
		if got != test.want || (err == nil) != (test.wrong == "") || err != nil && (err.Error() != test.wrong || !apierrors.IsBadRequest(err)) {
			t.Errorf("%s: %q, %v; want %q, %q", name, got, err, test.want, test.wrong)
		}
	}
}

func TestIsUnknownNode(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"a node":      {apierrors.NewNotFound(corev1.Resource("nodes"), "worker"), true},
		"a container": {apierrors.NewNotFound(corev1.Resource("containers"), "app"), false},
		"a refusal":   {apierrors.NewBadRequest("no"), false},
		"none":        {nil, false},
	} {
		if got := IsUnknownNode(test.err); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
