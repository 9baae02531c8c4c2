package restore

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
		answer    error
		get, list string // why the Secrets are unread; empty if they are not there
		isFatal   bool
	}{
		"500":         {answer: unconverted, get: "conversion webhook for example.com/v2, Kind=Widget failed: no endpoints", list: "conversion webhook for example.com/v2, Kind=Widget failed: no endpoints"},
		"405":         {answer: apierrors.NewMethodNotSupported(secretResource, "get"), list: `get is not supported on resources of kind "secrets"`},
		"unavailable": {answer: apierrors.NewServiceUnavailable("later"), get: "later", list: "later"},
		"401":         {answer: apierrors.NewUnauthorized("no"), isFatal: true},
		"no answer":   {answer: errors.New("connection refused"), isFatal: true},
	} {
		for n, why := range map[int]string{1: test.get, fewGets + 1: test.list} {
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
					if got := found.Unread[kept[i].Place()]; got != why {
						t.Errorf("%s is unread because %q, want %q", kept[i].Place(), got, why)
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
