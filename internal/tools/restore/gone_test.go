package restore

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// secretsOf returns the resource of Secrets.
func secretsOf() schema.GroupResource { return schema.GroupResource{Resource: "secrets"} }

// notServed is the answer to a path that a server does not know.
func notServed() *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "404 page not found", Details: &metav1.StatusDetails{},
	}}
}

// Only a 404 about an object shows that it is gone. A server that does not serve the kind for a moment and a load balancer also
// answer 404. The undo goes on: the creation decides.
func TestOnlyA404AboutAnObjectShowsThatItIsGone(t *testing.T) {
	page := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", secretsOf(), "s-0", "<html>", 0, true)
	for name, test := range map[string]struct {
		answer func(name string) error
		isGone bool
	}{
		"about the object":     {func(name string) error { return apierrors.NewNotFound(secretsOf(), name) }, true},
		"about another object": {func(string) error { return apierrors.NewNotFound(secretsOf(), "other") }, false},
		"about the path":       {func(string) error { return notServed() }, false},
		"without details": {func(string) error {
			return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}}
		}, false},
		"a page": {func(string) error { return page }, false},
	} {
		for _, n := range []int{1, fewGets + 1} {
			t.Run(fmt.Sprintf("%s, %d objects", name, n), func(t *testing.T) {
				server, whole, metadata := serverOf(t)
				metadata.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.answer("") })
				metadata.PrependReactor("get", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
					if a.GetResource().Resource == "namespaces" {
						return true, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "shop"}}, nil
					}
					return true, nil, test.answer(a.(clienttesting.GetAction).GetName())
				})
				createAll(whole)
				kept := secrets(n)
				found, err := server.Survey(t.Context(), kept)
				if err != nil {
					t.Fatal(err)
				}
				for i := range kept {
					if _, isUnread := found.Unread[kept[i].Place()]; isUnread == test.isGone || len(found.Existing) != 1 {
						t.Errorf("%s is unread: %t, %d objects exist", kept[i].Place(), isUnread, len(found.Existing))
					}
				}
				plan := undo.New(kept, found, undo.Options{})
				if err := (&Run{Server: server, Kinds: found.Kinds}).Run(t.Context(), plan); err != nil {
					t.Fatal(err)
				}
				if report := plan.Report(); report.Missing() != 0 || report.Objects[0].Outcome != undo.Made {
					t.Errorf("%s", report)
				}
			})
		}
	}
}

// createAll makes a client create all objects.
func createAll(whole *fake.FakeDynamicClient) {
	whole.PrependReactor("create", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		made := a.(clienttesting.CreateAction).GetObject().DeepCopyObject()
		made.(metav1.Object).SetUID("new")
		return true, made, nil
	})
}

// The objects of a kind that cannot be listed are read one by one, whatever their number: a user may be allowed only that, and
// one object that cannot be converted fails the list of all. The objects on the pages before the failure are read already.
func TestObjectsOfAKindThatCannotBeListedAreReadOneByOne(t *testing.T) {
	unconverted := apierrors.NewInternalError(errors.New("one object cannot be converted"))
	for name, test := range map[string]struct {
		list  error
		pages int // before the failure
	}{
		"forbidden":               {list: apierrors.NewForbidden(secretsOf(), "", errors.New("no"))},
		"one is not converted":    {list: unconverted},
		"on the second page":      {list: unconverted, pages: 1},
		"the second page expires": {list: apierrors.NewResourceExpired("too old"), pages: 1},
		"the path is not served":  {list: notServed()},
		"lists are not served":    {list: apierrors.NewMethodNotSupported(secretsOf(), "list")},
	} {
		t.Run(name, func(t *testing.T) {
			server, _, metadata := serverOf(t)
			pages := 0
			metadata.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
				if pages++; pages > test.pages {
					return true, nil, test.list
				}
				first := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s-3", UID: "on the first page"}}
				return true, &metav1.List{ListMeta: metav1.ListMeta{Continue: "more"}, Items: []runtime.RawExtension{{Object: first}}}, nil
			})
			metadata.PrependReactor("get", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
				switch name := a.(clienttesting.GetAction).GetName(); name {
				case "s-0", "s-3":
					return true, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "alone"}}, nil
				case "s-1":
					return true, nil, apierrors.NewForbidden(secretsOf(), name, errors.New("no"))
				case "s-2":
					return true, nil, unconverted
				default:
					return true, nil, apierrors.NewNotFound(secretsOf(), name)
				}
			})
			kept := secrets(10 * fewGets)
			found, err := server.Survey(t.Context(), kept)
			if err != nil {
				t.Fatal(err)
			}
			third := types.UID("alone")
			if test.pages > 0 {
				third = "on the first page"
			}
			if got := found.Existing[kept[0].Place()].UID; got != "alone" || found.Existing[kept[3].Place()].UID != third || len(found.Existing) != 2 {
				t.Errorf("there are %v", found.Existing)
			}
			want := map[undo.Place]string{kept[1].Place(): "you may not get secrets", kept[2].Place(): oneLine(unconverted)}
			for i := range kept {
				if got := found.Unread[kept[i].Place()]; got != want[kept[i].Place()] {
					t.Errorf("%s is unread because %q", kept[i].Place(), got)
				}
			}
		})
	}
}

// A kind whose single objects fail as its list does is given up: each may take as long. A user who may get only some of the
// objects gets all of these, and so does one who meets some failures.
func TestKindWhoseObjectsFailIsGivenUp(t *testing.T) {
	const many = 30 * fewGets
	failed := apierrors.NewInternalError(errors.New("the webhook is away"))
	for name, test := range map[string]struct {
		answer  func(nth int64) error
		isAsked bool // for all objects
	}{
		"all fail":          {func(int64) error { return failed }, false},
		"the path is away":  {func(int64) error { return notServed() }, false},
		"all are forbidden": {func(int64) error { return apierrors.NewForbidden(secretsOf(), "", errors.New("no")) }, true},
		"some are forbidden": {func(nth int64) error {
			return map[bool]error{true: apierrors.NewForbidden(secretsOf(), "", errors.New("no"))}[nth < many-1]
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			server, _, metadata := serverOf(t)
			metadata.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, failed })
			var gets atomic.Int64
			metadata.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "there"}}, test.answer(gets.Add(1))
			})
			kept := secrets(many)
			found, err := server.Survey(t.Context(), kept)
			if err != nil {
				t.Fatal(err)
			}
			if got := gets.Load(); (got == many) != test.isAsked || got > futileGets+parallel && !test.isAsked {
				t.Errorf("%d requests for %d objects", got, many)
			}
			isKnown := func(k undo.Kept) bool {
				_, isThere := found.Existing[k.Place()]
				return isThere || found.Unread[k.Place()] != ""
			}
			if at := slices.IndexFunc(kept, func(k undo.Kept) bool { return !isKnown(k) }); at >= 0 {
				t.Errorf("%s counts as gone", kept[at].Place())
			}
		})
	}
}

// The volume of a claim counts as gone only after a 404 about it. After another answer the report says that the volume is not
// linked.
func TestVolumeIsGoneOnlyAfterA404AboutIt(t *testing.T) {
	volumes := schema.GroupResource{Resource: "persistentvolumes"}
	for name, test := range map[string]struct {
		answer error
		notes  int
	}{
		"about the volume": {apierrors.NewNotFound(volumes, "pv"), 0},
		"about the path":   {notServed(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			server, whole, _ := serverOf(t)
			whole.PrependReactor("get", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.answer })
			kinds := map[schema.GroupKind]undo.Kind{{Kind: "Namespace"}: {}, {Kind: "PersistentVolume"}: {}, {Kind: "PersistentVolumeClaim"}: {Resource: claim().Resource, Namespaced: true}}
			existing := map[undo.Place]undo.Existing{
				{Kind: schema.GroupKind{Kind: "Namespace"}, Name: "shop"}: {UID: "shop"}, {Kind: schema.GroupKind{Kind: "PersistentVolume"}, Name: "pv"}: {UID: "pv"},
			}
			kept := []undo.Kept{claim()}
			kept[0].Object.SetOwnerReferences(nil)
			plan := undo.New(kept, undo.Cluster{Kinds: kinds, Existing: existing}, undo.Options{})
			plan.Made(plan.Steps[0], "new", nil)
			run := &Run{Server: server, plan: plan}
			if err := run.linkVolume(t.Context(), "pv"); err != nil {
				t.Fatal(err)
			}
			if step := plan.Steps[0]; len(step.Notes) != test.notes {
				t.Errorf("%q, want %d", step.Notes, test.notes)
			}
		})
	}
}
