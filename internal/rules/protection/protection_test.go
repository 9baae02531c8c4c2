package protection

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	shop   = Outlived{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "web"}
	widget = Outlived{APIVersion: "example.com/v1", Kind: "Widget", Name: "a"}
)

const list = `[{"apiVersion":"v1","kind":"ConfigMap","namespace":"shop","name":"web"},{"apiVersion":"example.com/v1","kind":"Widget","name":"a"}]`

// The decision for every label, deleter and list of remaining objects.
func TestR28_DecisionByLabelAndDeleter(t *testing.T) {
	someLeft := []Remaining{{Outlived: shop}}
	for _, test := range []struct {
		label, annotation string
		left              []Remaining
		request, cascade  bool // refused
	}{
		{label: "always", request: true, cascade: true},
		{label: "always", annotation: list, request: true, cascade: true},
		{label: "cascading", cascade: true},
		{label: "outlives", annotation: list, left: someLeft, request: true, cascade: true},
		{label: "outlives", annotation: list},
		{label: "unused", left: someLeft, request: true, cascade: true},
		{label: "unused", annotation: list},
		// An invalid label or annotation protects.
		{label: "", request: true, cascade: true},
		{label: "Cascading", request: true, cascade: true},
		{label: "outlives", request: true, cascade: true},
		{label: "outlives", annotation: "[]", request: true, cascade: true},
		{label: "outlives", annotation: "shop/web", request: true, cascade: true},
		{label: "outlives", annotation: `[{"kind":"ConfigMap"}]`, request: true, cascade: true},
	} {
		p, protected := Of(&metav1.ObjectMeta{Labels: map[string]string{Label: test.label}, Annotations: map[string]string{Annotation: test.annotation}})
		if !protected {
			t.Fatalf("%+v is not protected", test)
		}
		for by, want := range map[Deleter]bool{Request: test.request, Cascade: test.cascade} {
			if got := p.Decide(by, test.left) != nil; got != want {
				t.Errorf("label %q, annotation %q, %d left, deleter %d: refused %t, want %t", test.label, test.annotation, len(test.left), by, got, want)
			}
		}
	}
	if _, protected := Of(&metav1.ObjectMeta{Labels: map[string]string{"app": "web"}, Annotations: map[string]string{Annotation: list}}); protected {
		t.Error("without the label it is protected")
	}
}

func TestOutlivedObjectsAreParsedAndFormatted(t *testing.T) {
	others, err := ParseOutlives(list)
	if diff := cmp.Diff([]Outlived{shop, widget}, others); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	finalizer := Outlived{Finalizer: "example.com/hold"}
	text, err := FormatOutlives([]Outlived{widget, shop, finalizer, widget})
	if err != nil {
		t.Fatal(err)
	}
	others, err = ParseOutlives(text)
	if diff := cmp.Diff([]Outlived{shop, widget, finalizer}, others); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	for name, wrong := range map[string][]Outlived{
		"none": nil, "too many": make([]Outlived, MaxOutlives+1), "no version": {{APIVersion: "example.com/", Kind: "Widget", Name: "a"}},
		"a name of no object":      {{APIVersion: "v1", Kind: "ConfigMap", Name: "../../kube-system/secrets/a"}},
		"a namespace that is none": {{APIVersion: "v1", Kind: "ConfigMap", Namespace: "a/b", Name: "a"}},
		"no name":                  {{APIVersion: "v1", Kind: "ConfigMap"}}, "both": {{APIVersion: "v1", Finalizer: "example.com/hold"}},
	} {
		for i := range wrong {
			if name == "too many" {
				wrong[i] = Outlived{Finalizer: fmt.Sprintf("example.com/%d", i)}
			}
		}
		if text, err := FormatOutlives(wrong); err == nil {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// A refusal names the label that protects the object and the command that lifts the protection, and is
// recognized by its cause and by its message.
func TestRefusalNamesTheLabelAndTheCommand(t *testing.T) {
	p := New("outlives", list)
	left := []Remaining{{Outlived: shop}, {Outlived: widget, Unknown: "the kind is not served"}}
	err := p.Decide(Request, left).Error(schema.GroupResource{Group: "apps", Resource: "deployments"}, "infra", "db")
	want := `deployments.apps "db" is forbidden: protected by its label coppice.dev/protect=outlives: it outlives ConfigMap shop/web, ` +
		`Widget.example.com a (not known whether that is there: the kind is not served); to lift that: coppice unprotect deployments.apps/db -n infra`
	if !apierrors.IsForbidden(err) || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	message, refused := Refused(fmt.Errorf("delete: %w", err))
	if !refused || !strings.HasPrefix(message, "protected by its label") {
		t.Errorf("refused %t: %s", refused, message)
	}
	byPolicy := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a",
		errors.New("ValidatingAdmissionPolicy 'coppice-protect' with binding 'coppice-protect' denied request: protected by its label coppice.dev/protect=always"))
	if _, refused := Refused(byPolicy); !refused {
		t.Errorf("%v is not recognized", byPolicy)
	}
	for _, other := range []error{
		nil, errors.New(Label), apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a", errors.New("no")),
		&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonConflict, Message: Label}},
	} {
		if message, refused := Refused(other); refused {
			t.Errorf("%v is taken for a refusal: %s", other, message)
		}
	}
}

func TestReasonNamesAFewRemainingObjects(t *testing.T) {
	var left []Remaining
	for i := range MaxNamed + 1 {
		left = append(left, Remaining{Outlived: Outlived{Finalizer: fmt.Sprintf("example.com/%d", i)}})
	}
	if reason := New("outlives", list).Decide(Request, left).Reason(); !strings.HasSuffix(reason, "example.com/4, and others") {
		t.Error(reason)
	}
}

// Controllers publish the refusal of a cascade, so it names the kinds of users only.
func TestR28_RefusalNamesUsersOfAnObject(t *testing.T) {
	left := []Remaining{
		{Outlived: Outlived{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web"}, Field: "spec.nodeName"},
		{Outlived: Outlived{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "db"}, Field: "spec.nodeName"},
		{Outlived: Outlived{APIVersion: "storage.k8s.io/v1", Kind: "VolumeAttachment"}, Unread: true},
	}
	for by, want := range map[Deleter]string{
		Request: "it is in use by Pod shop/web (spec.nodeName), Pod shop/db (spec.nodeName), objects that you may not list",
		Cascade: "it is in use by objects of the kind Pod, objects of the kind VolumeAttachment.storage.k8s.io",
	} {
		if got := New("unused", "").Answer(by, left).Reason(); got != "protected by its label coppice.dev/protect=unused: "+want {
			t.Errorf("%d: %s", by, got)
		}
	}
}

// An object that is known to be used is refused as before, although others may use it that were not looked up.
func TestR28_RefusalIsFinalIfAUserIsKnown(t *testing.T) {
	p := New("unused", "")
	busy, known := Remaining{Busy: true}, Remaining{Outlived: Outlived{Kind: "Pod", Name: "web"}}
	for _, remaining := range [][]Remaining{{busy, known}, {known}} {
		err := p.Decide(Request, remaining).Error(schema.GroupResource{Resource: "secrets"}, "shop", "a")
		if message, isRefused := Refused(err); !isRefused || !strings.Contains(message, "it is in use by Pod web;") {
			t.Errorf("%v", err)
		}
	}
	if err := p.Decide(Request, []Remaining{busy}).Error(schema.GroupResource{Resource: "secrets"}, "shop", "a"); err.ErrStatus.Code != 429 {
		t.Errorf("nothing is known: %v", err)
	}
}
