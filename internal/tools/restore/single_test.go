package restore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// The failures of a kind count together while no object is read: objects that are gone answer at once, although those that exist
// need a webhook that is away. The reason is the answer about an object, not the one about the list.
func TestObjectsThatAreGoneDoNotHideFailures(t *testing.T) {
	const many = 30 * fewGets
	failed := apierrors.NewInternalError(errors.New("the webhook is away"))
	server, _, metadata := serverOf(t)
	metadata.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(secretsOf(), "", errors.New("no"))
	})
	kept := secrets(many)
	exists := map[string]bool{}
	for n := range kept {
		exists[kept[n].Object.GetName()] = n%4 == 0
	}
	var failures atomic.Int64
	metadata.PrependReactor("get", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		name := a.(clienttesting.GetAction).GetName()
		if exists[name] {
			failures.Add(1)
			return true, nil, failed
		}
		return true, nil, apierrors.NewNotFound(secretsOf(), name)
	})
	found, err := server.Survey(t.Context(), kept)
	if err != nil {
		t.Fatal(err)
	}
	if got := failures.Load(); got < futileGets || got > futileGets+parallelOfKind {
		t.Errorf("%d reads have failed", got)
	}
	for n := range kept {
		why, isUnread := found.Unread[kept[n].Place()]
		if isUnread && why != oneLine(failed) || n%4 == 0 && !isUnread {
			t.Errorf("%s is unread: %t, because %q", kept[n].Place(), isUnread, why)
		}
	}
}

// A kind whose reads hang is given up after a time, whatever the other reads of the kind answer, and does not hold up other kinds.
func TestKindWhoseReadsHangIsGivenUp(t *testing.T) {
	const many, hangs = 4000, 30 * time.Second
	secretKind, otherKind := schema.GroupKind{Kind: "Secret"}, schema.GroupKind{Kind: "Other"}
	failed := apierrors.NewInternalError(errors.New("the webhook is away"))
	for name, answer := range map[string]func(name string) error{
		"the others are there": func(string) error { return nil },
		"the others are gone":  func(name string) error { return apierrors.NewNotFound(secretsOf(), name) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var singles []single
				for n := range many {
					p := undo.Place{Kind: secretKind, Namespace: "shop", Name: fmt.Sprintf("s-%d", n)}
					singles = append(singles, single{p, func(context.Context) (metav1.Object, error) {
						if n%4 == 0 {
							time.Sleep(hangs)
							return nil, failed
						}
						return &metav1.ObjectMeta{UID: "there"}, answer(p.Name)
					}})
				}
				var late atomic.Int64
				for n := range fewGets {
					p := undo.Place{Kind: otherKind, Namespace: "shop", Name: fmt.Sprintf("o-%d", n)}
					singles = append(singles, single{p, func(context.Context) (metav1.Object, error) {
						if time.Since(began) > 0 {
							late.Add(1)
						}
						return &metav1.ObjectMeta{UID: "there"}, nil
					}})
				}
				s := (&Server{}).survey(nil)
				if err := s.readSingles(t.Context(), singles); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > futileTime+hangs || late.Load() > 0 {
					t.Errorf("it took %s, %d objects of the other kind were late", took, late.Load())
				}
				for n := range many {
					why, isUnread := s.found.Unread[singles[n].place]
					if n%4 == 0 && !isUnread || isUnread && why != oneLine(failed) {
						t.Errorf("%s is unread: %t, because %q", singles[n].place, isUnread, why)
					}
				}
			})
		})
	}
}

// A failure now and then does not end the reads of a kind: its other objects exist.
func TestKindWithSomeFailuresIsRead(t *testing.T) {
	const many = 30 * fewGets
	failed := apierrors.NewInternalError(errors.New("one object cannot be converted"))
	s := (&Server{}).survey(nil)
	var singles []single
	for n := range many {
		p := undo.Place{Kind: schema.GroupKind{Kind: "Secret"}, Namespace: "shop", Name: fmt.Sprintf("s-%d", n)}
		singles = append(singles, single{p, func(context.Context) (metav1.Object, error) {
			if n%16 == 0 {
				return nil, failed
			}
			return &metav1.ObjectMeta{UID: "there"}, nil
		}})
	}
	if err := s.readSingles(t.Context(), singles); err != nil {
		t.Fatal(err)
	}
	if len(s.found.Existing) != many-many/16-1 {
		t.Errorf("%d objects are read", len(s.found.Existing))
	}
}

// unlistable is the objects of a kind that cannot be listed.
type unlistable struct {
	metadata.ResourceInterface

	answer func() error
}

func (u unlistable) List(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	return nil, u.answer()
}

// Lists of a kind that hang are given up after a time, in however many namespaces its objects are. The objects are read one by one.
func TestKindWhoseListsHangIsGivenUp(t *testing.T) {
	const namespaces = 500
	synctest.Test(t, func(t *testing.T) {
		s, lists := (&Server{}).survey(nil), 0
		objects := unlistable{answer: func() error {
			lists++
			time.Sleep(futileTime / 2)
			return apierrors.NewInternalError(errors.New("the webhook is away"))
		}}
		for n := range namespaces {
			p := undo.Place{Kind: schema.GroupKind{Kind: "Secret"}, Namespace: fmt.Sprintf("shop-%d", n), Name: "s"}
			if err := s.list(t.Context(), listing{p.Kind, objects, map[string]undo.Place{p.Name: p}}); err != nil {
				t.Fatal(err)
			}
		}
		if lists != 2 || len(s.unlisted) != namespaces {
			t.Errorf("%d lists, and %d objects to read one by one", lists, len(s.unlisted))
		}
	})
}
