package apiserver_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	orphan     = metav1.FinalizerOrphanDependents
	foreground = metav1.FinalizerDeleteDependents
	foreign    = "example.com/hold"
	other      = "example.com/other"
)

func policy(p metav1.DeletionPropagation) *metav1.DeleteOptions {
	return &metav1.DeleteOptions{PropagationPolicy: &p}
}

func orphanDependents(b bool) *metav1.DeleteOptions {
	return &metav1.DeleteOptions{OrphanDependents: &b}
}

// AS-05, AS-06, AS-07: an explicit option takes precedence over an existing finalizer, and that
// over the default; foreign finalizers stay, in their order; an object with finalizers is marked.
func TestR17_Precedence(t *testing.T) {
	background := policy(metav1.DeletePropagationBackground)
	for _, test := range []struct {
		name     string
		existing []string
		options  *metav1.DeleteOptions
		want     []string // none: the object is gone
	}{
		{"nothing", nil, nil, nil},
		{"empty options", nil, &metav1.DeleteOptions{}, nil},
		{"background", nil, background, nil},
		{"foreground", nil, policy(metav1.DeletePropagationForeground), []string{foreground}},
		{"orphan", nil, policy(metav1.DeletePropagationOrphan), []string{orphan}},
		{"orphanDependents", nil, orphanDependents(true), []string{orphan}},
		{"orphanDependents false", nil, orphanDependents(false), nil},

		{"the object says orphan", []string{orphan}, nil, []string{orphan}},
		{"the object says foreground", []string{foreground}, nil, []string{foreground}},
		{"background beats orphan", []string{orphan}, background, nil},
		{"background beats foreground", []string{foreground}, background, nil},
		{"orphanDependents false beats orphan", []string{orphan}, orphanDependents(false), nil},
		{"foreground beats orphan", []string{orphan}, policy(metav1.DeletePropagationForeground), []string{foreground}},
		{"orphan beats foreground", []string{foreground}, policy(metav1.DeletePropagationOrphan), []string{orphan}},
		{"orphanDependents beats foreground", []string{foreground}, orphanDependents(true), []string{orphan}},

		{"foreign ones hold", []string{foreign, other}, nil, []string{foreign, other}},
		{"foreign ones hold, background", []string{other, foreign}, background, []string{other, foreign}},
		{"foreign ones keep their order", []string{other, orphan, foreign}, policy(metav1.DeletePropagationForeground), []string{other, foreign, foreground}},
		{"foreign ones keep their order, background", []string{other, orphan, foreign}, background, []string{other, foreign}},
	} {
		t.Run(test.name, func(t *testing.T) {
			onSubjects(t, func(t *testing.T, c collection) {
				created := c.create("a", test.existing...)
				answer := c.mustRemove("a", test.options)
				left := c.get("a")
				if len(test.want) == 0 {
					if left != nil {
						t.Errorf("it is left with finalizers %v", left.GetFinalizers())
					}
					isGone(t, c, answer, created)
					return
				}
				isMarked(t, answer, created, test.want)
				if left == nil {
					t.Fatal("it is gone")
				}
				isMarked(t, left, created, test.want)
			})
		})
	}
}

// isGone checks the response to a DELETE that has removed the object (R20, AS-14).
func isGone(t *testing.T, c collection, answer, created *object) {
	t.Helper()
	if !isStatus(answer) {
		t.Errorf("the answer is a %s, want a Status: %v", answer.GetKind(), answer.Object)
		return
	}
	details, _ := answer.Object["details"].(map[string]any)
	want := map[string]string{"name": created.GetName(), "kind": c.resource.Resource, "group": c.resource.Group, "uid": string(created.GetUID())}
	for field, value := range want {
		if got, _ := details[field].(string); got != value {
			t.Errorf("details.%s is %q, want %q", field, got, value)
		}
	}
	if answer.Object["status"] != metav1.StatusSuccess {
		t.Errorf("status is %v", answer.Object["status"])
	}
}

// isMarked checks an object whose deletion is pending (R18, AS-05).
func isMarked(t *testing.T, o, created *object, finalizers []string) {
	t.Helper()
	if isStatus(o) {
		t.Fatalf("it is a Status: %v", o.Object)
	}
	if o.GetUID() != created.GetUID() {
		t.Errorf("uid %s, want %s", o.GetUID(), created.GetUID())
	}
	if o.GetDeletionTimestamp() == nil {
		t.Error("it has no deletionTimestamp")
	}
	if grace := o.GetDeletionGracePeriodSeconds(); grace == nil || *grace != 0 {
		t.Errorf("the grace period is %v, want 0", grace)
	}
	if got, want := o.GetGeneration(), created.GetGeneration()+1; got != want {
		t.Errorf("generation %d, want %d", got, want)
	}
	if got := o.GetFinalizers(); !slices.Equal(got, finalizers) {
		t.Errorf("finalizers %v, want %v", got, finalizers)
	}
}

// AS-16: invalid options.
func TestR17_InvalidOptions(t *testing.T) {
	both := policy(metav1.DeletePropagationOrphan)
	both.OrphanDependents = new(true)
	for name, options := range map[string]*metav1.DeleteOptions{
		"policy and orphanDependents": both,
		"unknown policy":              policy("Sideways"),
		"unknown dry run":             {DryRun: []string{"Some"}},
	} {
		t.Run(name, func(t *testing.T) {
			onSubjects(t, func(t *testing.T, c collection) {
				c.create("a")
				if _, err := c.remove("a", options); !apierrors.IsInvalid(err) {
					t.Errorf("DELETE: %v, want 422", err)
				}
				if _, err := c.removeAll(nil, options); !apierrors.IsInvalid(err) {
					t.Errorf("DELETE of the collection: %v, want 422", err)
				}
				if left := c.get("a"); left == nil || left.GetDeletionTimestamp() != nil {
					t.Errorf("it has become %v", left)
				}
			})
		})
	}
}

// AS-16: an object may not hold both of the collector's finalizers.
func TestR17_NotBothFinalizers(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		if _, err := c.tryPost(c.named("a", orphan, foreground)); !apierrors.IsInvalid(err) {
			t.Errorf("create: %v, want 422", err)
		}
	})
}

// AS-02, AS-11, AS-16: preconditions are checked against the current object, which a refusal
// names.
func TestR17_Preconditions(t *testing.T) {
	for _, finalizers := range [][]string{nil, {foreign}} {
		t.Run(fmt.Sprintf("finalizers %v", finalizers), func(t *testing.T) {
			onSubjects(t, func(t *testing.T, c collection) {
				first := c.create("a", finalizers...)
				second, err := c.patch("a", types.MergePatchType, map[string]any{"metadata": map[string]any{"labels": map[string]any{"changed": "yes"}}})
				if err != nil {
					t.Fatal(err)
				}
				for name, preconditions := range map[string]metav1.Preconditions{
					"another uid":                   {UID: new(types.UID("another"))},
					"an older version":              {ResourceVersion: new(first.GetResourceVersion())},
					"this uid and an older version": {UID: new(first.GetUID()), ResourceVersion: new(first.GetResourceVersion())},
					"another uid and this version":  {UID: new(types.UID("another")), ResourceVersion: new(second.GetResourceVersion())},
				} {
					_, err := c.remove("a", &metav1.DeleteOptions{Preconditions: &preconditions})
					if !apierrors.IsConflict(err) {
						t.Fatalf("%s: %v, want 409", name, err)
					}
					if !strings.Contains(err.Error(), `"a"`) || !strings.Contains(err.Error(), c.resource.Resource) && !strings.Contains(err.Error(), c.kind.Kind) {
						t.Errorf("%s: the refusal does not name %s a: %v", name, c.resource, err)
					}
					if left := c.get("a"); left == nil || left.GetResourceVersion() != second.GetResourceVersion() {
						t.Fatalf("%s: it has become %v", name, left)
					}
				}
				fresh := metav1.Preconditions{UID: new(second.GetUID()), ResourceVersion: new(second.GetResourceVersion())}
				if answer := c.mustRemove("a", &metav1.DeleteOptions{Preconditions: &fresh}); isStatus(answer) == (len(finalizers) > 0) {
					t.Errorf("the answer is a %s", answer.GetKind())
				}
			})
		})
	}
}

// AS-01: an object that does not exist.
func TestR20_NotFound(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		if _, err := c.remove("nobody", nil); !apierrors.IsNotFound(err) {
			t.Errorf("%v, want 404", err)
		}
		c.create("a")
		c.mustRemove("a", nil)
		if _, err := c.remove("a", nil); !apierrors.IsNotFound(err) {
			t.Errorf("the second time: %v, want 404", err)
		}
	})
}

// A dry run responds with what would happen, and changes nothing.
func TestR17_DryRun(t *testing.T) {
	dry := func(o *metav1.DeleteOptions) *metav1.DeleteOptions {
		o = o.DeepCopy()
		o.DryRun = []string{metav1.DryRunAll}
		return o
	}
	for _, test := range []struct {
		name       string
		finalizers []string
		options    *metav1.DeleteOptions
		want       []string
	}{
		{"would be gone", nil, &metav1.DeleteOptions{}, nil},
		{"would be marked", []string{foreign}, &metav1.DeleteOptions{}, []string{foreign}},
		{"would be marked, foreground", nil, policy(metav1.DeletePropagationForeground), []string{foreground}},
		{"would be marked, orphan", nil, policy(metav1.DeletePropagationOrphan), []string{orphan}},
		{"would be gone, background", []string{orphan}, policy(metav1.DeletePropagationBackground), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			onSubjects(t, func(t *testing.T, c collection) {
				created := c.create("a", test.finalizers...)
				answer := c.mustRemove("a", dry(test.options))
				if len(test.want) > 0 {
					isMarked(t, answer, created, test.want)
				} else {
					wouldBeGone(t, c, answer, created, true)
				}
				if left := c.get("a"); left == nil || left.GetResourceVersion() != created.GetResourceVersion() {
					t.Errorf("it has become %v", left)
				}
				if _, err := c.removeAll(nil, dry(test.options)); err != nil {
					t.Error(err)
				}
				if left := c.get("a"); left == nil || left.GetResourceVersion() != created.GetResourceVersion() {
					t.Errorf("after the dry run of the collection it has become %v", left)
				}
				_, err := c.remove("a", dry(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(types.UID("another"))}}))
				if !apierrors.IsConflict(err) {
					t.Errorf("another uid: %v, want 409", err)
				}
			})
		})
	}
}

// The options may be in the query.
func TestR17_OptionsInQuery(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		created := c.create("a")
		answer, err := c.send(http.MethodDelete, c.at("a")+"?propagationPolicy=Foreground", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		isMarked(t, answer, created, []string{foreground})
	})
}

// The response to orphanDependents=false is 202 while the deletion is pending, as old clients
// expect, even if the request is repeated.
func TestR20_Accepted(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		c.create("a", foreign, foreground)
		for i, want := range []int{http.StatusAccepted, http.StatusAccepted} {
			status, _, err := c.exchange(http.MethodDelete, c.at("a"), "application/json", orphanDependents(false))
			if err != nil || status != want {
				t.Errorf("DELETE %d is answered with %d (%v), want %d", i+1, status, err, want)
			}
		}
	})
}
