package builtin

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/core"
)

// fakeServer has the registries of all resources, on one fake storage.
type fakeServer struct {
	t       *testing.T
	schemes registry.Schemes
	mains   map[string]*registry.REST // by resource
}

func newFakeServer(t *testing.T) fakeServer {
	t.Helper()
	return newFakeServerIn(t, core.ServiceRanges{})
}

// newFakeServerIn returns a fakeServer whose services get their addresses from given ranges.
func newFakeServerIn(t *testing.T, ranges core.ServiceRanges) fakeServer {
	t.Helper()
	p := fakeServer{t, NewSchemes(), map[string]*registry.REST{}}
	groups, err := APIGroups(p.schemes, fakeConfig(newFakeStorage(), fakeDeleter{}), ranges)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range groups {
		for _, storages := range group.VersionedResourcesStorageMap {
			for resource, storage := range storages {
				if main, ok := storage.(*registry.REST); ok {
					p.mains[resource] = main
				}
			}
		}
	}
	return p
}

// try creates an object, like a request after admission.
func (p fakeServer) try(text string) (runtime.Object, error) {
	p.t.Helper()
	resource, obj := decode(p.t, p.schemes, text)
	return p.mains[resource.Plural].Create(requestContext(resource), obj, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
}

func (p fakeServer) create(text string) runtime.Object {
	p.t.Helper()
	obj, err := p.try(text)
	if err != nil {
		p.t.Fatal(err)
	}
	return obj
}

// replace updates an object, as a PUT does.
func (p fakeServer) replace(text string) (runtime.Object, error) {
	p.t.Helper()
	resource, obj := decode(p.t, p.schemes, text)
	updated, _, err := p.mains[resource.Plural].Update(requestContext(resource), metaOf(obj).GetName(), rest.DefaultUpdatedObjectInfo(obj),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	return updated, err
}

const simplePod = `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: a, image: "a:1"}]}}`

func TestPodPriority(t *testing.T) {
	pod := func(fields string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {generateName: web-}, spec: {containers: [{name: a, image: "a:1"}]` + fields + `}}`
	}
	class := func(name, fields string) string {
		return `{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: ` + name + `}` + fields + `}`
	}
	p := newFakeServer(t)
	if got := p.create(pod("")).(*corev1.Pod).Spec; *got.Priority != 0 || got.PriorityClassName != "" || *got.PreemptionPolicy != corev1.PreemptLowerPriority {
		t.Errorf("without classes: %d of %q, %s", *got.Priority, got.PriorityClassName, *got.PreemptionPolicy)
	}
	p.create(class("high", ", value: 1000, preemptionPolicy: Never"))
	p.create(class("usual", ", value: 7, globalDefault: true"))
	for _, test := range []struct {
		fields, class string
		value         int32
		policy        corev1.PreemptionPolicy
		refused       string
	}{
		{"", "usual", 7, corev1.PreemptLowerPriority, ""},
		{", priorityClassName: high", "high", 1000, corev1.PreemptNever, ""},
		{", priorityClassName: high, priority: 1000, preemptionPolicy: Never", "high", 1000, corev1.PreemptNever, ""},
		{", priorityClassName: low", "", 0, "", "no PriorityClass with name low was found"},
		{", priorityClassName: high, priority: 5", "", 0, "", "the integer value of priority (5) must not be provided"},
		{", preemptionPolicy: Never", "", 0, "", "the string value of PreemptionPolicy (Never) must not be provided"},
	} {
		obj, err := p.try(pod(test.fields))
		if test.refused != "" {
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.refused) {
				t.Errorf("%s: %v, want %q", test.fields, err, test.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", test.fields, err)
			continue
		}
		got := obj.(*corev1.Pod).Spec
		if got.PriorityClassName != test.class || *got.Priority != test.value || *got.PreemptionPolicy != test.policy {
			t.Errorf("%s: %d of %q, %s", test.fields, *got.Priority, got.PriorityClassName, *got.PreemptionPolicy)
		}
	}
	if _, err := p.try(class("another", ", value: 1, globalDefault: true")); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "usual is already marked as default") {
		t.Errorf("a second default: %v", err)
	}
	if _, err := p.replace(class("high", ", value: 1000, preemptionPolicy: Never, globalDefault: true")); !apierrors.IsForbidden(err) {
		t.Errorf("a second default by an update: %v", err)
	}
	if _, err := p.replace(class("usual", ", value: 7, globalDefault: true, description: same")); err != nil {
		t.Errorf("the default itself: %v", err)
	}
}

// TestPodReplacedByItsManifest checks that a client that sends its original manifest again changes nothing, if the
// manifest names the account and the class: the update keeps tolerations and the values of the class.
func TestPodReplacedByItsManifest(t *testing.T) {
	p := newFakeServer(t)
	p.create(`{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: usual}, value: 7, globalDefault: true}`)
	const names = "spec: {serviceAccountName: default, priorityClassName: usual, "
	manifest := strings.Replace(simplePod, "spec: {", names, 1)
	created := p.create(manifest).(*corev1.Pod)
	if created.Spec.DeprecatedServiceAccount != "default" || len(created.Spec.Tolerations) != 2 {
		t.Errorf("created with account %q and %d tolerations", created.Spec.DeprecatedServiceAccount, len(created.Spec.Tolerations))
	}
	updated, err := p.replace(manifest)
	if err != nil {
		t.Fatal(err)
	}
	if got := updated.(*corev1.Pod); got.Generation != 1 {
		t.Errorf("generation %d, want 1", got.Generation)
	}
	for _, name := range []string{"serviceAccountName: default, ", "priorityClassName: usual, "} {
		if _, err := p.replace(strings.Replace(manifest, name, "", 1)); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "pod updates may not change fields") {
			t.Errorf("without %q: %v", name, err)
		}
	}
}

// TestDefaultStorageClass checks that a volume claim without a class gets the newest default class, and that a claim
// with an empty class keeps it.
func TestDefaultStorageClass(t *testing.T) {
	p := newFakeServer(t)
	claim := func(fields string) *string {
		t.Helper()
		return p.create(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {generateName: c-}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}` + fields + `}}`).(*corev1.PersistentVolumeClaim).Spec.StorageClassName
	}
	p.create(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: slow}, provisioner: example.com/disk}`)
	if got := claim(""); got != nil {
		t.Errorf("without a default: %s", *got)
	}
	p.create(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}, provisioner: example.com/disk}`)
	if got := ptr.Deref(claim(""), ""); got != "fast" {
		t.Errorf("class %q, want fast", got)
	}
	if got := claim(`, storageClassName: ""`); *got != "" {
		t.Errorf("class %q for a claim that wants none", *got)
	}
}

// TestPodLabelKeys checks that the requirements from a pod's label keys become part of its selectors on create, and
// that an update may send the result again.
func TestPodLabelKeys(t *testing.T) {
	p := newFakeServer(t)
	const term = `{topologyKey: zone, labelSelector: {matchLabels: {app: a}}, matchLabelKeys: [version, none], mismatchLabelKeys: [tenant]}`
	pod := p.create(`{apiVersion: v1, kind: Pod, metadata: {name: web, labels: {version: "2", tenant: x}}, spec: {containers: [{name: a, image: "a:1"}],
		affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [` + term + `]},
			podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: ` + term + `}]}},
		topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, matchLabelKeys: [version], labelSelector: {}},
			{maxSkew: 1, topologyKey: host, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: a}}}]}}`).(*corev1.Pod)
	affinity, spread := pod.Spec.Affinity, pod.Spec.TopologySpreadConstraints
	const merged = "app=a,tenant notin (x),version in (2)"
	for i, test := range []struct {
		selector *metav1.LabelSelector
		want     string
	}{
		{affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector, merged},
		{affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.LabelSelector, merged},
		{spread[0].LabelSelector, "version in (2)"},
		{spread[1].LabelSelector, "app=a"},
	} {
		if got := metav1.FormatLabelSelector(test.selector); got != test.want {
			t.Errorf("selector %d is %q, want %q", i, got, test.want)
		}
	}
	updated := pod.DeepCopy()
	updated.Labels["version"] = "3" // the selector keeps the value from the creation
	again, _, err := p.mains["pods"].Update(requestContext(p.mains["pods"].Resource), "web", rest.DefaultUpdatedObjectInfo(updated),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := metav1.FormatLabelSelector(again.(*corev1.Pod).Spec.TopologySpreadConstraints[0].LabelSelector); got != "version in (2)" {
		t.Errorf("after an update the selector is %q", got)
	}
}
