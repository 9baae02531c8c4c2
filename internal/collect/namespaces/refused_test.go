package namespaces

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/collect/storybook"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// R31: contents that the server refuses to delete are reported with the refuser, until they are deleted; a webhook that
// answers 404 is one of the refusers.
func TestR31_RefusedContentsAreReported(t *testing.T) {
	policy := apierrors.NewForbidden(configMaps.GroupResource(), "a", errors.New("ValidatingAdmissionPolicy 'keep' with binding 'keep-all' denied request: it is kept"))
	webhook := apierrors.NewNotFound(configMaps.GroupResource(), "a")
	webhook.ErrStatus.Message = `admission webhook "keep.example.com" denied the request: no team`
	webhook.ErrStatus.Details = &metav1.StatusDetails{Kind: "configmaps", Name: "a"}
	for _, test := range []struct {
		refusal *apierrors.StatusError
		want    report.RefusedObject
		message string
	}{
		{policy, report.RefusedObject{By: "policy", Refuser: "keep", Binding: "keep-all", Message: "it is kept"}, "ValidatingAdmissionPolicy 'keep'"},
		{webhook, report.RefusedObject{By: "webhook", Refuser: "keep.example.com", Message: "no team"}, `admission webhook "keep.example.com"`},
	} {
		t.Run(test.want.By, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFakeServer(t, everyType...)
				w.create("shop", configMaps, "a")
				w.broken["delete configmaps a"] = test.refusal
				w.terminating("shop")
				stories := storybook.New()
				c := w.run()
				stories.Seen(&ownership.Object{Kind: ownership.Kind{Kind: "Namespace"}, Name: "shop", UID: "ns-shop", Phase: ownership.Terminating}, "", time.Now())
				defer c.RecordIn(stories)()
				<-time.After(2 * time.Minute)
				want := test.want
				want.Kind, want.Namespace, want.Name, want.Action = configMaps.Kind, "shop", "a", report.ActionDelete
				objects, counts := c.Refused()
				if diff := cmp.Diff([]report.RefusedObject{want}, objects, cmpopts.IgnoreFields(report.RefusedObject{}, "UID", "Since", "Last", "Count")); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
				if len(counts) != 1 || counts[0].Objects != 1 {
					t.Errorf("counts: %+v", counts)
				}
				if got := w.condition("shop", "NamespaceDeletionContentFailure"); !strings.Contains(got, test.message) {
					t.Errorf("the condition is %q", got)
				}
				during := refusalOf(t, stories)
				w.mu.Lock()
				delete(w.broken, "delete configmaps a")
				w.mu.Unlock()
				<-time.After(time.Minute)
				if objects, counts := c.Refused(); len(objects)+len(counts) > 0 {
					t.Errorf("refused afterwards: %+v", objects)
				}
				after := refusalOf(t, stories)
				if during.Ended != nil || during.Refuser != want.Refuser || during.Message != want.Message || during.Count < 2 || after.Ended == nil || after.Count != during.Count {
					t.Errorf("the story of the namespace has %+v, and afterwards %+v", during, after)
				}
			})
		})
	}
}

// R31: a namespace is at rest when the server refuses to delete its contents, but not for a moment after a refuser has
// changed: the server may not know that yet.
func TestR31_NamespaceWithRefusedContentsIsAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		w.create("shop", configMaps, "a")
		w.create("shop", configMaps, "b")
		policy := apierrors.NewForbidden(configMaps.GroupResource(), "a", errors.New("ValidatingAdmissionPolicy 'keep' with binding 'keep-all' denied request: it is kept"))
		w.broken["delete configmaps a"], w.broken["delete configmaps b"] = policy, errors.New("the connection is lost")
		w.terminating("shop")
		c := w.run()
		isAtRest := func(want bool, when string) {
			t.Helper()
			if left := c.Unsettled([]string{"shop"}); (len(left) == 0) != want {
				t.Errorf("%s: unsettled: %q", when, left)
			}
		}
		<-time.After(time.Minute)
		isAtRest(false, "a deletion fails")
		w.mu.Lock()
		delete(w.broken, "delete configmaps b")
		w.mu.Unlock()
		<-time.After(time.Minute)
		isAtRest(true, "all others are gone")
		c.RefusersChanged([]refusal.By{refusal.ByPolicy})
		isAtRest(false, "the policy has just changed")
		<-time.After(time.Minute)
		isAtRest(true, "the policy has changed a while ago")
	})
}

// refusalOf returns the refusal of the object in the story of the namespace "shop".
func refusalOf(t *testing.T, stories *storybook.Book) story.Refusal {
	t.Helper()
	_, objects, _, _ := stories.Story("ns-shop", 0, nil, time.Now())
	if len(objects) != 2 || objects[1].Refusal == nil {
		t.Fatalf("the objects of the story: %+v", objects)
	}
	return *objects[1].Refusal
}
