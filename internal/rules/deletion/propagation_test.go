package deletion

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	orphan     = metav1.FinalizerOrphanDependents
	foreground = metav1.FinalizerDeleteDependents
)

// policy and legacy build options; short names keep the table rows readable.
func policy(p metav1.DeletionPropagation) *metav1.DeleteOptions {
	return &metav1.DeleteOptions{PropagationPolicy: &p}
}

func legacy(orphanDependents bool) *metav1.DeleteOptions {
	return &metav1.DeleteOptions{OrphanDependents: &orphanDependents}
}

// firstDelete returns the finalizers that a first DELETE leaves between two foreign ones; ""
// means none of the collector's.
func firstDelete(t *testing.T, existing string, options *metav1.DeleteOptions, s Strategy) string {
	t.Helper()
	list := []string{"example.com/a", "example.com/b"}
	if existing != "" {
		list = slices.Insert(list, 1, existing)
	}
	marked := apply(t, object(), decide(t, object(finalizers(list...)), options, s))
	if marked == nil {
		t.Fatal("removed an object that has finalizers")
	}
	ours := slices.DeleteFunc(slices.Clone(marked.Finalizers), func(f string) bool { return strings.HasPrefix(f, "example.com/") })
	others := slices.DeleteFunc(slices.Clone(marked.Finalizers), func(f string) bool { return !strings.HasPrefix(f, "example.com/") })
	if diff := cmp.Diff([]string{"example.com/a", "example.com/b"}, others); diff != "" {
		t.Errorf("foreign finalizers (-want +got):\n%s", diff)
	}
	if marked.Generation != 4 || *marked.DeletionGracePeriodSeconds != 0 || !marked.DeletionTimestamp.Time.Equal(noon) {
		t.Errorf("marked: generation %d, grace %d, timestamp %v", marked.Generation, *marked.DeletionGracePeriodSeconds, marked.DeletionTimestamp)
	}
	return strings.Join(ours, ",")
}

// AS-06 and AS-07: explicit option > existing finalizer > the kind's default,
// for each option, each existing finalizer and both defaults.
func TestR17_WhichPolicyCounts(t *testing.T) {
	// For each option: the result for "", orphan and foreground, on a kind that deletes by
	// default, and on one that orphans by default.
	tests := []struct {
		name    string
		options *metav1.DeleteOptions
		deletes [3]string
		orphans [3]string
	}{
		{"AS-06 orphanDependents=true", legacy(true), [3]string{orphan, orphan, orphan}, [3]string{orphan, orphan, orphan}},
		{"AS-06 orphanDependents=false", legacy(false), [3]string{"", "", ""}, [3]string{"", "", ""}},
		{"AS-06 nothing said", &metav1.DeleteOptions{}, [3]string{"", orphan, foreground}, [3]string{orphan, orphan, foreground}},
		{"AS-06 nil options", nil, [3]string{"", orphan, foreground}, [3]string{orphan, orphan, foreground}},
		{"AS-07 Orphan", policy(metav1.DeletePropagationOrphan), [3]string{orphan, orphan, orphan}, [3]string{orphan, orphan, orphan}},
		{"AS-07 Foreground", policy(metav1.DeletePropagationForeground), [3]string{foreground, foreground, foreground}, [3]string{foreground, foreground, foreground}},
		{"AS-07 Background", policy(metav1.DeletePropagationBackground), [3]string{"", "", ""}, [3]string{"", "", ""}},
	}
	for _, test := range tests {
		for i, existing := range []string{"", orphan, foreground} {
			t.Run(fmt.Sprintf("%s/has %q", test.name, existing), func(t *testing.T) {
				if got := firstDelete(t, existing, test.options, Strategy{}); got != test.deletes[i] {
					t.Errorf("kind that deletes: left %q, want %q", got, test.deletes[i])
				}
				orphaning := Strategy{DefaultPropagation: metav1.DeletePropagationOrphan}
				if got := firstDelete(t, existing, test.options, orphaning); got != test.orphans[i] {
					t.Errorf("kind that orphans: left %q, want %q", got, test.orphans[i])
				}
			})
		}
	}
}

// AS-08: the default may depend on the version of the request, so it is the strategy's.
func TestR17_DefaultOfTheVersion(t *testing.T) {
	for version, want := range map[string]metav1.DeletionPropagation{
		"extensions/v1beta1": metav1.DeletePropagationOrphan,
		"apps/v1beta1":       metav1.DeletePropagationOrphan,
		"apps/v1beta2":       metav1.DeletePropagationOrphan,
		"apps/v1":            metav1.DeletePropagationBackground,
	} {
		plan := decide(t, object(), &metav1.DeleteOptions{}, Strategy{DefaultPropagation: want})
		if _, removed := plan.(Remove); removed != (want == metav1.DeletePropagationBackground) {
			t.Errorf("%s: plan %v", version, plan)
		}
	}
}

// NS-24: namespaces follow the rule of every kind, with one exception that
// clients know from upstream: orphanDependents=false means foreground.
func TestR17_NamespacePolicies(t *testing.T) {
	tests := []struct {
		name    string
		options *metav1.DeleteOptions
		want    [3]string // with "", orphan, foreground present
	}{
		{"nothing said", &metav1.DeleteOptions{}, [3]string{"", orphan, foreground}},
		{"orphanDependents=true", legacy(true), [3]string{orphan, orphan, orphan}},
		{"orphanDependents=false", legacy(false), [3]string{foreground, foreground, foreground}},
		{"Orphan", policy(metav1.DeletePropagationOrphan), [3]string{orphan, orphan, orphan}},
		{"Foreground", policy(metav1.DeletePropagationForeground), [3]string{foreground, foreground, foreground}},
		{"Background", policy(metav1.DeletePropagationBackground), [3]string{"", "", ""}},
	}
	for _, test := range tests {
		for i, existing := range []string{"", orphan, foreground} {
			t.Run(fmt.Sprintf("NS-24 %s/has %q", test.name, existing), func(t *testing.T) {
				s := namespaces()
				s.OnMark = nil // the object of this test has no labels
				if got := firstDelete(t, existing, test.options, s); got != test.want[i] {
					t.Errorf("left %q, want %q", got, test.want[i])
				}
			})
		}
	}
}

// AS-04, AS-05: without a collector, nothing would remove its finalizer.
func TestR17_CollectorDisabledAddsNothing(t *testing.T) {
	s := Strategy{CollectorDisabled: true, DefaultPropagation: metav1.DeletePropagationOrphan}
	for _, options := range []*metav1.DeleteOptions{nil, legacy(true), legacy(false), policy(metav1.DeletePropagationForeground), policy(metav1.DeletePropagationOrphan)} {
		for _, existing := range []string{"", orphan, foreground} {
			if got := firstDelete(t, existing, options, s); got != existing {
				t.Errorf("options %+v: left %q of %q", options, got, existing)
			}
		}
		stored := object(deleting(noon, 0), finalizers(foreign))
		if plan := decide(t, stored, options, s); equalPlans(Keep{}, plan) != "" {
			t.Errorf("options %+v, already deleting: plan %v, want Keep", options, plan)
		}
	}
}

// FG-04 and AS-16: on an object that is being deleted, a DELETE may remove the collector's
// finalizer and adds none, not even one that was there before.
func TestR19_RepeatedDeleteOnlyRemovesFinalizers(t *testing.T) {
	const refused = "refused"
	tests := []struct {
		name    string
		options *metav1.DeleteOptions
		want    [3]string // with "", orphan, foreground present
	}{
		{"nothing said", &metav1.DeleteOptions{}, [3]string{"", orphan, foreground}},
		{"Background", policy(metav1.DeletePropagationBackground), [3]string{"", "", ""}},
		{"orphanDependents=false", legacy(false), [3]string{"", "", ""}},
		{"FG-04 Foreground", policy(metav1.DeletePropagationForeground), [3]string{"", "", foreground}},
		{"Orphan", policy(metav1.DeletePropagationOrphan), [3]string{refused, orphan, refused}},
		{"orphanDependents=true", legacy(true), [3]string{refused, orphan, refused}},
	}
	for _, test := range tests {
		for i, existing := range []string{"", orphan, foreground} {
			for _, s := range []Strategy{{}, {DefaultPropagation: metav1.DeletePropagationOrphan}} {
				t.Run(fmt.Sprintf("%s/has %q/default %q", test.name, existing, s.DefaultPropagation), func(t *testing.T) {
					stored := object(deleting(noon, 0), finalizers(foreign))
					want := []string{foreign}
					if existing != "" {
						stored.Finalizers = append(stored.Finalizers, existing)
					}
					if test.want[i] != "" {
						want = append(want, test.want[i])
					}
					plan, err := Decide(stored, test.options, s, noon)
					if test.want[i] == refused {
						if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "can no longer be orphaned") {
							t.Errorf("plan %v, err %v, want a refusal", plan, err)
						}
						return
					}
					if err != nil {
						t.Fatalf("Decide: %v", err)
					}
					if diff := cmp.Diff(want, apply(t, stored, plan).Finalizers); diff != "" {
						t.Errorf("finalizers (-want +got):\n%s", diff)
					}
				})
			}
		}
	}
}

// On kube-apiserver a repeated DELETE has the effect of a first one on the finalizers, unless it changes nothing.
func TestRepeatedDeleteReplacesFinalizers(t *testing.T) {
	kind := func(pending bool, byDefault metav1.DeletionPropagation) Strategy {
		return Strategy{
			RepeatedReplaces: true, DefaultPropagation: byDefault, Pending: func(runtime.Object) bool { return pending },
			Grace: func(runtime.Object, *int64) (int64, bool) { return 30, true },
		}
	}
	graceful := func(seconds int64, p metav1.DeletionPropagation) *metav1.DeleteOptions {
		return &metav1.DeleteOptions{GracePeriodSeconds: &seconds, PropagationPolicy: &p}
	}
	for _, c := range []struct {
		what     string
		grace    int64
		existing string
		options  *metav1.DeleteOptions
		strategy Strategy
		want     string
	}{
		{"orphan after background", 0, "", policy(metav1.DeletePropagationOrphan), kind(false, ""), orphan},
		{"orphan after foreground", 0, foreground, policy(metav1.DeletePropagationOrphan), kind(false, ""), orphan},
		{"foreground after background", 0, "", policy(metav1.DeletePropagationForeground), kind(false, ""), foreground},
		{"foreground after orphan", 0, orphan, policy(metav1.DeletePropagationForeground), kind(false, ""), foreground},
		{"background after foreground", 0, foreground, policy(metav1.DeletePropagationBackground), kind(false, ""), ""},
		{"nothing said after foreground", 0, foreground, &metav1.DeleteOptions{}, kind(false, metav1.DeletePropagationOrphan), foreground},
		{"nothing said of a kind that orphans", 0, "", &metav1.DeleteOptions{}, kind(false, metav1.DeletePropagationOrphan), orphan},
		{"grace that is left", 30, foreground, policy(metav1.DeletePropagationOrphan), kind(false, ""), foreground},
		{"grace that gets no shorter", 30, foreground, graceful(30, metav1.DeletePropagationOrphan), kind(false, ""), foreground},
		{"grace that gets shorter", 30, foreground, graceful(5, metav1.DeletePropagationOrphan), kind(false, ""), orphan},
		{"a namespace with contents", 0, foreground, policy(metav1.DeletePropagationOrphan), kind(true, ""), foreground},
	} {
		t.Run(c.what, func(t *testing.T) {
			stored := object(deleting(noon, c.grace), finalizers(foreign))
			want := []string{foreign}
			if c.existing != "" {
				stored.Finalizers = append(stored.Finalizers, c.existing)
			}
			if c.want != "" {
				want = append(want, c.want)
			}
			if diff := cmp.Diff(want, apply(t, stored, decide(t, stored, c.options, c.strategy)).Finalizers); diff != "" {
				t.Errorf("finalizers (-want +got):\n%s", diff)
			}
		})
	}
}

// Background on an object that only the collector holds: the transaction removes its last
// finalizer, and with it the object.
func TestR19_BackgroundEndsAForegroundDeletion(t *testing.T) {
	stored := object(deleting(noon, 0), finalizers(foreground))
	plan := decide(t, stored, policy(metav1.DeletePropagationBackground), Strategy{})
	if diff := equalPlans(Remove{}, plan); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

// Validation prevents an object from having both finalizers (AS-16); if it has both, neither is
// duplicated and orphan wins (TR-04).
func TestR17_BothFinalizers(t *testing.T) {
	stored := object(finalizers(foreground, foreign, orphan))
	marked := apply(t, stored, decide(t, stored, &metav1.DeleteOptions{}, Strategy{}))
	if diff := cmp.Diff([]string{foreign, orphan}, marked.Finalizers, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
}
