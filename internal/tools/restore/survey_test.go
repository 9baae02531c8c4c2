package restore

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// R29: a kind that cannot be read does not prevent the undo of other kinds. Without an answer of the server, nothing is
// undone.
func TestR29_KindThatCannotBeReadStopsNothing(t *testing.T) {
	secretResource := schema.GroupResource{Resource: "secrets"}
	unconverted := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: "conversion webhook for example.com/v2, Kind=Widget failed:\nno endpoints",
	}}
	for name, test := range map[string]struct {
		answer  error
		why     string // the Secrets are unread; empty if they are not there
		isFatal bool
	}{
		"500":         {answer: unconverted, why: "conversion webhook for example.com/v2, Kind=Widget failed: no endpoints"},
		"405":         {answer: apierrors.NewMethodNotSupported(secretResource, "get")},
		"unavailable": {answer: apierrors.NewServiceUnavailable("later"), why: "later"},
		"401":         {answer: apierrors.NewUnauthorized("no"), isFatal: true},
		"no answer":   {answer: errors.New("connection refused"), isFatal: true},
	} {
		for _, n := range []int{1, fewGets + 1} {
			t.Run(fmt.Sprintf("%s, %d objects", name, n), func(t *testing.T) {
				server, _, metadata := serverOf(t)
				metadata.PrependReactor("*", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.answer })
				metadata.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "shop"}}, nil
				})
				kept := secrets(n)
				found, err := server.Survey(t.Context(), kept)
				if (err != nil) != test.isFatal || test.isFatal && !errors.Is(err, test.answer) {
					t.Fatalf("the error is %v", err)
				}
				if test.isFatal {
					return
				}
				for i := range kept {
					if got := found.Unread[kept[i].Place()]; got != test.why {
						t.Errorf("%s is unread because %q, want %q", kept[i].Place(), got, test.why)
					}
				}
				if got := found.Existing[undo.Place{Kind: schema.GroupKind{Kind: "Namespace"}, Name: "shop"}].UID; got != "shop" {
					t.Errorf("the namespace is not read: %+v", found)
				}
				if missing := undo.New(kept, found, undo.Options{}).Report().Missing(); missing != 0 {
					t.Errorf("the plan gives up %d of %d objects", missing, n)
				}
			})
		}
	}
}

// A webhook that denies a creation or a status chooses the code: the report has the denial, and no other attempt is made.
func TestDenialIsReportedWhateverItsCode(t *testing.T) {
	for name, answer := range map[string]*apierrors.StatusError{
		"404":            {ErrStatus: metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}},
		"already exists": {ErrStatus: metav1.Status{Code: http.StatusConflict, Reason: metav1.StatusReasonAlreadyExists}},
		"429":            {ErrStatus: metav1.Status{Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests}},
	} {
		t.Run(name, func(t *testing.T) {
			const says = `admission webhook "keep.example.com" denied the request: no team`
			answer.ErrStatus.Status, answer.ErrStatus.Message = metav1.StatusFailure, says
			server, whole, metadata := serverOf(t)
			metadata.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "shop"}}, nil
			})
			writes := 0
			deny := func(clienttesting.Action) (bool, runtime.Object, error) {
				writes++
				return true, nil, answer
			}
			whole.PrependReactor("create", "secrets", deny)
			whole.PrependReactor("patch", "secrets", deny)
			kept := secrets(1)
			kept[0].Object.Object["status"] = map[string]any{"phase": "Bound"}
			found, err := server.Survey(t.Context(), kept)
			if err != nil {
				t.Fatal(err)
			}
			plan := undo.New(kept, found, undo.Options{Status: true})
			run := Run{Server: server, Kinds: found.Kinds, Status: true}
			if err := run.Run(t.Context(), plan); err != nil {
				t.Fatal(err)
			}
			if o := plan.Report().Objects[0]; o.Outcome != undo.Failed || o.Why != says || writes != 1 {
				t.Errorf("%d attempts, %+v", writes, o)
			}
			step := plan.Steps[0]
			if err := run.writeStatus(t.Context(), step, run.objects(step)); err != nil || len(step.Notes) != 1 {
				t.Errorf("the status: %v, %q", err, step.Notes)
			}
		})
	}
}

// R29: a claim that only --relink accepts is read whole, because its metadata does not have its volume. If that fails, the
// claim counts as unread, so that it gets no volume.
func TestR29_OtherClaimsAreReadWhole(t *testing.T) {
	claims := schema.GroupResource{Resource: "persistentvolumeclaims"}
	whole := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": map[string]any{"namespace": "shop", "name": "c", "uid": "other"}, "spec": map[string]any{"volumeName": "w"},
	}}
	for name, test := range map[string]struct {
		uid     types.UID // of the present claim
		answer  error
		volume  string // in the survey
		unread  string
		isThere bool
	}{
		"another":            {uid: "other", volume: "w", isThere: true},
		"another, forbidden": {uid: "other", answer: apierrors.NewForbidden(claims, "c", errors.New("no")), unread: "you may not get persistentvolumeclaims"},
		"another, gone now":  {uid: "other", answer: apierrors.NewNotFound(claims, "c")},
		"the same":           {uid: "former", isThere: true},
	} {
		t.Run(name, func(t *testing.T) {
			server, dynamic, metadata := serverOf(t)
			server.discovery = &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{{
				GroupVersion: "v1", APIResources: []metav1.APIResource{
					{Name: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", Namespaced: true}, {Name: "persistentvolumes", Kind: "PersistentVolume"}, {Name: "namespaces", Kind: "Namespace"},
				},
			}}}}
			metadata.PrependReactor("get", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", UID: test.uid}}, nil
			})
			dynamic.PrependReactor("get", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, whole, test.answer
			})
			volume := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "PersistentVolume", "metadata": map[string]any{"name": "v", "uid": "v"},
				"spec": map[string]any{"persistentVolumeReclaimPolicy": "Delete", "claimRef": map[string]any{"namespace": "shop", "name": "c", "uid": "former"}},
			}}
			kept := []undo.Kept{{Resource: schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}, Object: volume}}
			found, err := server.Survey(t.Context(), kept)
			if err != nil {
				t.Fatal(err)
			}
			place := undo.Place{Kind: schema.GroupKind{Kind: "PersistentVolumeClaim"}, Namespace: "shop", Name: "c"}
			existing, isThere := found.Existing[place]
			if isThere != test.isThere || existing.VolumeName != test.volume || found.Unread[place] != test.unread {
				t.Errorf("%+v, %t, unread because %q", existing, isThere, found.Unread[place])
			}
			report := undo.New(kept, found, undo.Options{Relink: true}).Report()
			if isMade := report.Objects[0].Outcome == undo.Made; isMade != (test.uid == "former") {
				t.Errorf("%s", report)
			}
		})
	}
}
