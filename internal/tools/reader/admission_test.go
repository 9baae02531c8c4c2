package reader

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clientgotesting "k8s.io/client-go/testing"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// What admission decides by is read: the policies that have bindings, with their parameters; whole objects, unless they
// were replaced; and who deletes.
func TestAdmissionIsRead(t *testing.T) {
	configMaps := &inventory.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"), Kind: "ConfigMap", Namespaced: true}
	named := func(name string, kind *admissionregistrationv1.ParamKind) *admissionregistrationv1.ValidatingAdmissionPolicy {
		return &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: in("", name), Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{ParamKind: kind}}
	}
	bind := func(name, policy string) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
		return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: in("", name), Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy}}
	}
	client := fake.NewClientset(
		named("plain", nil), named("unbound", nil),
		named("limited", &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}),
		named("strange", &admissionregistrationv1.ParamKind{APIVersion: "example.com/v1", Kind: "Limit"}),
		bind("one", "plain"), bind("two", "plain"), bind("three", "limited"), bind("four", "strange"), bind("five", "gone"),
	)
	client.Resources = []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}}}}
	client.PrependReactor("create", "selfsubjectreviews", func(clientgotesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "ann"}}}, nil
	})
	known := metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "1"}
	reader := &Facts{client: client, whole: dynamicfake.NewSimpleDynamicClient(clientgoscheme.Scheme, &corev1.ConfigMap{ObjectMeta: known, Data: map[string]string{"size": "7"}})}
	facts := inventory.NewFacts()
	object := func(uid ownership.UID) *inventory.Object {
		return &inventory.Object{Resource: configMaps, Object: ownership.Object{UID: uid, Namespace: "shop", Name: "a"}}
	}
	ask := func() (policies []inventory.Policy, body, replaced inventory.Fact[*unstructured.Unstructured], deleters inventory.Deleters) {
		return facts.AllPolicies().Value, facts.Body(object("1")), facts.Body(object("2")), facts.AllDeleters().Value
	}
	ask()
	reader.Read(t.Context(), facts.Needs(), facts)
	policies, body, replaced, deleters := ask()
	if needs := facts.Needs(); !needs.IsEmpty() {
		t.Fatalf("not read: %+v", needs)
	}

	found := map[string]inventory.Policy{}
	for _, p := range policies {
		found[p.Name] = p
	}
	if len(policies) != 3 || len(found["plain"].Bindings) != 2 {
		t.Errorf("the policies are %v", found)
	}
	if p := found["limited"]; len(p.Params.Value) != 1 || !p.ParamsAreNamespaced || p.Params.Unread != "" {
		t.Errorf("the parameters are %+v", p.Params)
	}
	if p := found["strange"]; p.Params.Unread == "" {
		t.Error("parameters of a kind that is not served are read")
	}
	if size, _, _ := unstructured.NestedString(body.Value.Object, "data", "size"); size != "7" {
		t.Errorf("the object is %+v", body)
	}
	if replaced.Unread == "" {
		t.Error("an object was replaced, and counts as read")
	}
	if deleters.Requester.Username != "ann" || deleters.Collector.Username != "system:serviceaccount:kube-system:generic-garbage-collector" {
		t.Errorf("the deleters are %+v", deleters)
	}
}

// A question reads a bounded number of whole objects, and of bytes.
func TestWholeObjectsAreBounded(t *testing.T) {
	reader := &Facts{client: fake.NewClientset(), whole: dynamicfake.NewSimpleDynamicClient(clientgoscheme.Scheme)}
	needs, known := map[ownership.UID]*inventory.Object{}, map[ownership.UID]inventory.Fact[*unstructured.Unstructured]{}
	resource := &inventory.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps")}
	for n := range mostBodies + 10 {
		uid := ownership.UID(rune(n + 1000))
		needs[uid] = &inventory.Object{Resource: resource, Object: ownership.Object{UID: uid, Namespace: "shop", Name: string(uid)}}
	}
	reader.readBodies(t.Context(), needs, known)
	notRead := 0
	for _, fact := range known {
		if fact.Unread == errTooManyBodies.Error() {
			notRead++
		}
	}
	if len(known) != len(needs) || notRead != 10 {
		t.Errorf("%d facts, %d not read, want %d and 10", len(known), notRead, len(needs))
	}

	large := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "1"}, Data: map[string]string{"a": strings.Repeat("x", 1000)}}
	reader = &Facts{client: fake.NewClientset(), whole: dynamicfake.NewSimpleDynamicClient(clientgoscheme.Scheme, large)}
	one := &inventory.Object{Resource: resource, Object: ownership.Object{UID: "1", Namespace: "shop", Name: "a"}}
	for _, unread := range []string{"", errTooManyBodies.Error()} {
		facts := map[ownership.UID]inventory.Fact[*unstructured.Unstructured]{}
		reader.readBodies(t.Context(), map[ownership.UID]*inventory.Object{"1": one}, facts)
		if got := facts["1"].Unread; got != unread {
			t.Errorf("after %d bytes: %q, want %q", reader.bytesOfBodies.Load(), got, unread)
		}
		if reader.bytesOfBodies.Load() < 1000 {
			t.Errorf("an object has %d bytes", reader.bytesOfBodies.Load())
		}
		reader.bytesOfBodies.Store(mostBytes + 1)
	}
}
