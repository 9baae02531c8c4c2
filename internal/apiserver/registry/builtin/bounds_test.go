package builtin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

const (
	// many is the number of mistakes in an object.
	many = 20_000
	// lots is so many elements that a check which compares every two of them exceeds the timeout of the tests: 125 billion
	// comparisons take a quarter of an hour or more. No request is so long.
	lots = 500_000
	// mostText bounds the text of a response, in bytes.
	mostText = 2 << 20
)

// long returns a list that a client may choose to be long.
func long[T any](element func(i int) T) []T { return times(many, element) }

func times[T any](n int, element func(i int) T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = element(i)
	}
	return all
}

func valid(change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: metav1.NamespaceDefault, Annotations: map[string]string{}}}
	pod.Spec.Containers = []corev1.Container{{Name: "a", Image: "a:1", TerminationMessagePath: "/dev/log", TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullAlways}}
	pod.Spec.RestartPolicy, pod.Spec.DNSPolicy = corev1.RestartPolicyAlways, corev1.DNSClusterFirst
	pod.Spec.TerminationGracePeriodSeconds = new(int64)
	change(pod)
	return pod
}

// created validates a new object as the main endpoint does.
func created(t *testing.T, plural string, obj runtime.Object) error {
	t.Helper()
	resource, schemes := rowFor(t, plural), NewSchemes()
	newborn(obj)
	return rest.BeforeCreate(mainREST(t, resource, schemes).CreateStrategy, requestContext(resource), obj)
}

// TestWarningsAreBounded checks pods with more mistakes than elements: every pair of ports and every pair of files is
// one.
func TestWarningsAreBounded(t *testing.T) {
	number := func(i int) int32 { return int32(i%60_000 + 1) }
	for name, pod := range map[string]*corev1.Pod{
		"ports": valid(func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = long(func(int) corev1.ContainerPort { return corev1.ContainerPort{ContainerPort: 1, Protocol: "TCP"} })
		}),
		"port names": valid(func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = long(func(i int) corev1.ContainerPort {
				return corev1.ContainerPort{Name: "http", ContainerPort: number(i), Protocol: "TCP"}
			})
		}),
		"files": valid(func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v"}}
			p.Spec.Volumes[0].ConfigMap = &corev1.ConfigMapVolumeSource{Items: long(func(int) corev1.KeyToPath { return corev1.KeyToPath{Key: "a", Path: "a"} })}
			p.Spec.Volumes[0].ConfigMap.Name = "c"
		}),
		"variables": valid(func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = long(func(int) corev1.EnvVar { return corev1.EnvVar{Name: "A"} })
		}),
		"pull secrets": valid(func(p *corev1.Pod) {
			p.Spec.ImagePullSecrets = long(func(int) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: "a"} })
		}),
		"long names": valid(func(p *corev1.Pod) {
			p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: strings.Repeat("ä", many)}, {Name: strings.Repeat("ä", many)}}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			resource, size := rowFor(t, "pods"), 0
			own := resource.Strategy.Warn(pod, nil)
			all := mainREST(t, resource, NewSchemes()).CreateStrategy.WarningsOnCreate(requestContext(resource), pod)
			for _, text := range all {
				size += len(text)
			}
			// The strategy itself must not collect more either: that is what takes the memory.
			if len(own) > 100 || len(all) > 100 || size > mostText {
				t.Errorf("%d warnings of %d, %d bytes", len(all), len(own), size)
			}
			if len(all) == 0 {
				t.Error("no warnings")
			}
		})
	}
}

// TestLongListsHaveNoWarnings checks lists without mistakes. A check that compares every two elements never ends here.
func TestLongListsHaveNoWarnings(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"ports": func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = times(lots, func(i int) corev1.ContainerPort {
				return corev1.ContainerPort{ContainerPort: 1, Protocol: "TCP", HostPort: int32(i + 1)}
			})
		},
		"files": func(p *corev1.Pod) {
			items := times(lots, func(i int) corev1.KeyToPath { return corev1.KeyToPath{Key: "a", Path: fmt.Sprintf("file-%07d", i)} })
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}, Items: items},
			}}}
		},
		"host aliases": func(p *corev1.Pod) {
			p.Spec.HostAliases = times(lots, func(i int) corev1.HostAlias {
				return corev1.HostAlias{IP: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			if found := rowFor(t, "pods").Strategy.Warn(valid(change), nil); len(found) > 0 {
				t.Errorf("%d warnings, the first one is %.300s", len(found), found[0])
			}
		})
	}
}

// TestWarningsQuoteFilesInPart checks a long path that many other paths contain. Each pair is a warning, and a request
// has 3 MB.
func TestWarningsQuoteFilesInPart(t *testing.T) {
	pod := valid(func(p *corev1.Pod) {
		source := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}
		for i := range 20 {
			source.Items = append(source.Items, corev1.KeyToPath{Key: "a", Path: strings.Repeat("a/", i) + "a"})
		}
		source.Items = append(source.Items, corev1.KeyToPath{Key: "a", Path: strings.Repeat("a/", mostText/2)})
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: source}}}
	})
	found, size := rowFor(t, "pods").Strategy.Warn(pod, nil), 0
	for _, text := range found {
		size += len(text)
	}
	if len(found) != validate.MaxWarnings || size > mostText {
		t.Errorf("%d warnings with %d bytes", len(found), size)
	}
}

// refusals are new objects with many mistakes.
func refusals() map[string]struct {
	plural string
	obj    runtime.Object
} {
	type refusal = struct {
		plural string
		obj    runtime.Object
	}
	keys := map[string]string{}
	for i := range many {
		keys[fmt.Sprintf("key %05d", i)] = ""
	}
	template := valid(func(*corev1.Pod) {}).Spec
	return map[string]refusal{
		"keys":   {"configmaps", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}, Data: keys}},
		"labels": {"configmaps", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default", Labels: keys}}},
		"finalizers": {"configmaps", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "a", Namespace: "default", Finalizers: long(func(i int) string { return fmt.Sprintf("f%05d", i) }),
		}}},
		"claims": {"pods", valid(func(p *corev1.Pod) {
			for i := range many / 10 {
				claim := "c"
				p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: fmt.Sprintf("claim-%05d", i), ResourceClaimName: &claim})
				p.Spec.Containers[0].Resources.Claims = append(p.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: fmt.Sprintf("other-%05d", i)})
			}
		})},
		"requests of one claim": {"pods", valid(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Claims = long(func(i int) corev1.ResourceClaim {
				return corev1.ResourceClaim{Name: "a", Request: fmt.Sprintf("r-%05d", i)}
			})
		})},
		"variables": {"pods", valid(func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = long(func(i int) corev1.EnvVar {
				ref := &corev1.FileKeySelector{Key: "A", Path: "p", VolumeName: fmt.Sprintf("v-%05d", i)}
				return corev1.EnvVar{Name: "A", ValueFrom: &corev1.EnvVarSource{FileKeyRef: ref}}
			})
		})},
		"exit codes": {"jobs", &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"},
			Spec: batchv1.JobSpec{
				Template: corev1.PodTemplateSpec{Spec: template},
				PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
					Action: batchv1.PodFailurePolicyActionFailJob,
					OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
						Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: long(func(i int) int32 { return int32(many - i) }),
					},
				}}},
			},
		}},
		"addresses": {"endpointslices", &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}, AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{strings.Repeat("1", mostText)}}},
		}},
		"one long value": {"configmaps", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "a", Namespace: "default", Labels: map[string]string{"a": strings.Repeat("ä", many*10)},
		}}},
	}
}

// TestErrorsAreBounded checks that a response names the first mistakes of an object only, with values of bounded length.
func TestErrorsAreBounded(t *testing.T) {
	for name, test := range refusals() {
		t.Run(name, func(t *testing.T) { checkBounded(t, created(t, test.plural, test.obj)) })
	}
}

// checkBounded checks the size of an error about an invalid object.
func checkBounded(t *testing.T, err error) {
	t.Helper()
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsInvalid(err) {
		t.Fatalf("%.200v, want an error about an invalid object", err)
	}
	found, size := status.Status().Details.Causes, len(status.Status().Message)
	for _, cause := range found {
		size += len(cause.Message) + len(cause.Field)
	}
	if len(found) > 201 || size > mostText {
		t.Errorf("%d causes, %d bytes", len(found), size)
	}
	if more := strings.Contains(found[len(found)-1].Message, "more errors, which the server does not list"); more != (len(found) == 201) {
		t.Errorf("%d causes, the last one is %.300s", len(found), found[len(found)-1].Message)
	}
}

// TestErrorsOfUpdatesAreBounded checks the errors about metadata, which k8s.io/apiserver adds to the errors of a
// strategy on an update.
func TestErrorsOfUpdatesAreBounded(t *testing.T) {
	keys := map[string]string{}
	for i := range many {
		keys[fmt.Sprintf("key %05d", i)] = ""
	}
	resource, schemes := rowFor(t, "pods"), NewSchemes()
	for endpoint, change := range map[string]func(*corev1.Pod){
		"main":   func(p *corev1.Pod) { p.Labels = keys },
		"status": func(p *corev1.Pod) { p.Annotations = keys },
	} {
		t.Run(endpoint, func(t *testing.T) {
			old, obj := valid(asStored), valid(asStored)
			change(obj)
			checkBounded(t, rest.BeforeUpdate(strategyOf(t, resource, schemes, endpoint), requestContext(resource), obj, old))
		})
	}
}

func asStored(p *corev1.Pod) { stored(p) }

// TestFewErrorsStayAsTheyAre checks that up to 200 errors are the ones of the strategy, and that one more is counted.
func TestFewErrorsStayAsTheyAre(t *testing.T) {
	wrong := func(n int) *corev1.Pod {
		return valid(func(p *corev1.Pod) {
			for i := range n {
				p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("A=%d", i)})
			}
		})
	}
	want := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "web", rowFor(t, "pods").Strategy.Validate(wrong(200)))
	if err := created(t, "pods", wrong(200)); err == nil || err.Error() != want.Error() || len(want.ErrStatus.Details.Causes) != 200 {
		t.Errorf("%.300v, want %.300v", err, want)
	}
	err := created(t, "pods", wrong(202))
	const more = "spec.containers[0].env[200].name: Invalid value: this is the first of at least 2 more errors, which the server does not list\n"
	if got := causes(err); !strings.HasSuffix(got, more) || strings.Count(got, "\n") != 201 {
		t.Errorf("%s, want the end %s", got, more)
	}
}

// TestErrorsNameTenClaims checks that an error about a claim which a pod does not have names some of its claims.
func TestErrorsNameTenClaims(t *testing.T) {
	claims := func(n int) error {
		return created(t, "pods", valid(func(p *corev1.Pod) {
			for i := range n {
				p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: fmt.Sprintf("c-%02d", i), ResourceClaimName: new("c")})
			}
			p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "other"}}
		}))
	}
	const others = `spec.containers[0].resources.claims[0]: Not found: "other": must be one of the names in pod.spec.resourceClaims`
	const ten = ": c-00, c-01, c-02, c-03, c-04, c-05, c-06, c-07, c-08, c-09"
	for n, want := range map[int]string{0: " which is empty", 2: ": c-00, c-01", 10: ten, 12: ten + ", and 2 others"} {
		if got := causes(claims(n)); got != others+want+"\n" {
			t.Errorf("%d claims: %s", n, got)
		}
	}
}

// TestLongListsAreAccepted updates objects with long lists, which are valid. A check that compares every two elements
// never ends here.
func TestLongListsAreAccepted(t *testing.T) {
	schemes := NewSchemes()
	finalizers := times(lots, func(i int) string { return fmt.Sprintf("example.com/f%07d", i) })
	for name, test := range map[string]struct {
		plural, endpoint string
		obj              runtime.Object
	}{
		"finalizers":           {"configmaps", "main", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Finalizers: finalizers}}},
		"finalizers of events": {"events", "main", reported(func(e *corev1.Event) { e.Finalizers = finalizers })},
		"tolerations": {"pods", "main", valid(func(p *corev1.Pod) {
			p.Spec.Tolerations = times(lots, func(i int) corev1.Toleration {
				return corev1.Toleration{Key: fmt.Sprintf("key-%07d", i), Operator: corev1.TolerationOpExists}
			})
		})},
		"scheduling gates": {"pods", "main", valid(func(p *corev1.Pod) {
			p.Spec.SchedulingGates = times(lots, func(i int) corev1.PodSchedulingGate {
				return corev1.PodSchedulingGate{Name: fmt.Sprintf("example.com/g%07d", i)}
			})
		})},
		"statuses of containers": {"pods", "status", valid(func(p *corev1.Pod) {
			p.Status.ContainerStatuses = times(lots, func(i int) corev1.ContainerStatus {
				ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
				return corev1.ContainerStatus{Name: fmt.Sprintf("c-%07d", i), State: ended}
			})
		})},
	} {
		t.Run(name, func(t *testing.T) {
			resource := rowFor(t, test.plural)
			stored(test.obj)
			metaOf(test.obj).SetNamespace(metav1.NamespaceDefault)
			ctx := requestContext(resource)
			if test.plural == "events" { // only this version checks finalizers
				ctx = genericrequest.WithRequestInfo(ctx, &genericrequest.RequestInfo{APIGroup: eventsv1.GroupName, APIVersion: "v1"})
			}
			obj := test.obj.DeepCopyObject()
			metaOf(obj).SetFinalizers(append(slices.Clone(metaOf(obj).GetFinalizers()), "example.com/new"))
			errs := strategyOf(t, resource, schemes, test.endpoint).ValidateUpdate(ctx, obj, test.obj)
			if len(errs) > 0 {
				t.Errorf("%d errors, the first one is %.300v", len(errs), errs[0])
			}
		})
	}
}

// TestStoredExitCodesStay checks a Job from before the server checked the order of exit codes: its finalizers can be removed.
func TestStoredExitCodesStay(t *testing.T) {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: metav1.NamespaceDefault, Finalizers: []string{"example.com/f"}},
		Spec: batchv1.JobSpec{
			Template: corev1.PodTemplateSpec{Spec: valid(func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }).Spec},
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action:      batchv1.PodFailurePolicyActionFailJob,
				OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{2, 1}},
			}}},
		},
	}
	resource, schemes := rowFor(t, "jobs"), NewSchemes()
	resource.Strategy.Default(job)
	stored(job)
	update := func(change func(*batchv1.Job)) error {
		changed := job.DeepCopy()
		change(changed)
		return rest.BeforeUpdate(strategyOf(t, resource, schemes, "main"), requestContext(resource), changed, job)
	}
	if err := update(func(j *batchv1.Job) { j.Finalizers = nil }); err != nil {
		t.Errorf("a finalizer is removed: %v", err)
	}
	if err := update(func(j *batchv1.Job) { j.Spec.PodFailurePolicy.Rules[0].OnExitCodes.Values = []int32{3, 1} }); err == nil {
		t.Error("the codes may change")
	}
}
