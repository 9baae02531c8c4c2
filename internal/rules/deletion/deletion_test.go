package deletion

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const foreign = "example.com/hold"

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// object returns a stored object, modified by change.
func object(change ...func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", UID: "u1", ResourceVersion: "7", Generation: 3,
	}}
	for _, c := range change {
		c(o)
	}
	return o
}

func finalizers(f ...string) func(*metav1.PartialObjectMetadata) {
	return func(o *metav1.PartialObjectMetadata) { o.Finalizers = f }
}

// deleting marks the object as being deleted; its grace period ends at end.
func deleting(end time.Time, grace int64) func(*metav1.PartialObjectMetadata) {
	return func(o *metav1.PartialObjectMetadata) {
		o.DeletionTimestamp = &metav1.Time{Time: end}
		o.DeletionGracePeriodSeconds = &grace
	}
}

// pods returns a strategy like the one of running pods: 30 s of grace unless requested otherwise.
func pods() Strategy {
	return Strategy{
		Resource: schema.GroupResource{Resource: "pods"},
		Grace: func(_ runtime.Object, requested *int64) (int64, bool) {
			if requested != nil {
				return *requested, true
			}
			return 30, true
		},
	}
}

// namespaces returns a strategy like the one of namespaces, for an object whose labels stand for
// spec and status.
func namespaces() Strategy {
	return Strategy{
		Resource:              schema.GroupResource{Resource: "namespaces"},
		OrphanDependentsFalse: metav1.DeletePropagationForeground,
		Pending:               func(o runtime.Object) bool { return o.(*metav1.PartialObjectMetadata).Labels["spec"] != "" },
		OnMark:                func(o runtime.Object) { o.(*metav1.PartialObjectMetadata).Labels["phase"] = "Terminating" },
	}
}

func decide(t *testing.T, obj runtime.Object, options *metav1.DeleteOptions, s Strategy) Plan {
	t.Helper()
	before := obj.DeepCopyObject()
	plan, err := Decide(obj, options, s, noon)
	if err != nil {
		t.Fatalf("Decide: %v", err)
	}
	if diff := cmp.Diff(before, obj); diff != "" {
		t.Fatalf("Decide changed the object (-before +after):\n%s", diff)
	}
	return plan
}

// apply carries out a plan as a store does; nil means that the object is gone.
func apply(t *testing.T, obj *metav1.PartialObjectMetadata, plan Plan) *metav1.PartialObjectMetadata {
	t.Helper()
	switch p := plan.(type) {
	case Remove:
		return nil
	case Mark:
		obj = obj.DeepCopy()
		if err := p.Apply(obj); err != nil {
			t.Fatalf("Apply: %v", err)
		}
	case Keep:
	}
	return obj
}

func equalPlans(a, b Plan) string {
	return cmp.Diff(a, b, cmpopts.IgnoreUnexported(Mark{}), cmpopts.EquateEmpty(),
		cmpopts.IgnoreFields(Remove{}, "Reason"), cmpopts.IgnoreFields(Keep{}, "Reason"))
}

func TestR17_OptionsAreValidated(t *testing.T) {
	tests := map[string]struct {
		options metav1.DeleteOptions
		wantErr string
	}{
		"nothing":         {},
		"AS-16 both":      {metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan), OrphanDependents: new(true)}, "propagationPolicy"},
		"unknown policy":  {metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletionPropagation("Maybe"))}, "propagationPolicy"},
		"unknown dry run": {metav1.DeleteOptions{DryRun: []string{"Some"}}, "dryRun"},
		"policy alone":    {metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}, ""},
		"legacy alone":    {metav1.DeleteOptions{OrphanDependents: new(false)}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Decide(object(), &test.options, Strategy{}, noon)
			if test.wantErr == "" {
				if err != nil {
					t.Fatalf("Decide: %v", err)
				}
				return
			}
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("err = %v, want an Invalid that names %s", err, test.wantErr)
			}
		})
	}
}

// AS-11 and AS-16: the given object comes from the transaction, so a check of it is a check of
// the fresh object.
func TestR17_PreconditionsOfTheFreshObject(t *testing.T) {
	tests := map[string]struct {
		preconditions metav1.Preconditions
		wantErr       string
	}{
		"both hold":             {metav1.Preconditions{UID: new(types.UID("u1")), ResourceVersion: new("7")}, ""},
		"another uid":           {metav1.Preconditions{UID: new(types.UID("u0"))}, "uid"},
		"older resourceVersion": {metav1.Preconditions{UID: new(types.UID("u1")), ResourceVersion: new("6")}, "resourceVersion"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Decide(object(), &metav1.DeleteOptions{Preconditions: &test.preconditions}, pods(), noon)
			if test.wantErr == "" {
				if err != nil {
					t.Fatalf("Decide: %v", err)
				}
				return
			}
			if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("err = %v, want a Conflict that names %s", err, test.wantErr)
			}
		})
	}
}

// AS-04 (graceful) and AS-05 (not graceful): a DELETE only marks while there
// is a finalizer, an update that keeps one keeps the object, the update that
// removes the last one removes the object.
func TestR18_LastFinalizerRemovesTheObject(t *testing.T) {
	for name, s := range map[string]Strategy{
		"AS-04 graceful":                     pods(),
		"AS-04 graceful, collector disabled": {Grace: pods().Grace, CollectorDisabled: true},
		"AS-05":                              {},
		"AS-05 collector disabled":           {CollectorDisabled: true},
	} {
		t.Run(name, func(t *testing.T) {
			stored := object(finalizers(foreign, "example.com/second"))
			if Finished(stored, s) {
				t.Fatal("Finished before the DELETE")
			}
			marked := apply(t, stored, decide(t, stored, metav1.NewDeleteOptions(0), s))
			if marked == nil {
				t.Fatal("removed an object that has finalizers")
			}
			marked.Finalizers = marked.Finalizers[:1]
			if Finished(marked, s) {
				t.Error("Finished with a finalizer left")
			}
			marked.Finalizers = nil
			if !Finished(marked, s) {
				t.Error("not Finished without finalizers")
			}
		})
	}
}

func TestR18_MarkOrRemove(t *testing.T) {
	mark := func(grace int64, f ...string) Mark {
		return Mark{
			First: true, Finalizers: f, GracePeriodSeconds: grace,
			DeletionTimestamp: metav1.NewTime(noon.Add(seconds(grace))),
		}
	}
	markFirst := mark(0)
	tests := map[string]struct {
		obj      *metav1.PartialObjectMetadata
		options  *metav1.DeleteOptions
		strategy Strategy
		want     Plan
	}{
		"nothing holds it":                   {object(), &metav1.DeleteOptions{}, Strategy{}, Remove{}},
		"a finalizer holds it":               {object(finalizers(foreign)), &metav1.DeleteOptions{}, Strategy{}, mark(0, foreign)},
		"grace holds it":                     {object(), &metav1.DeleteOptions{}, pods(), mark(30)},
		"grace was asked for":                {object(), metav1.NewDeleteOptions(5), pods(), mark(5)},
		"grace 0 does not hold it":           {object(), metav1.NewDeleteOptions(0), pods(), Remove{MarkFirst: &markFirst}},
		"grace 0 and a finalizer":            {object(finalizers(foreign)), metav1.NewDeleteOptions(0), pods(), mark(0, foreign)},
		"no options: at once":                {object(), nil, pods(), Remove{MarkFirst: &markFirst}},
		"not graceful ignores the option":    {object(), metav1.NewDeleteOptions(5), Strategy{}, Remove{}},
		"its kind holds it":                  {object(label("spec", "kubernetes")), nil, namespaces(), mark(0)},
		"AS-03 marked, then the crash":       {object(deleting(noon, 0)), &metav1.DeleteOptions{}, pods(), Remove{}},
		"AS-03 marked without a grace field": {object(deleting(noon, 0), noGrace), &metav1.DeleteOptions{}, pods(), Remove{}},
		"deleting, a finalizer is left":      {object(deleting(noon, 0), finalizers(foreign)), &metav1.DeleteOptions{}, Strategy{}, Keep{}},
		"deleting, grace is pending":         {object(deleting(noon.Add(time.Minute), 60)), &metav1.DeleteOptions{}, pods(), Keep{}},
		"deleting, its kind holds it":        {object(deleting(noon, 0), label("spec", "kubernetes")), nil, namespaces(), Keep{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := equalPlans(test.want, decide(t, test.obj, test.options, test.strategy)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

func label(key, value string) func(*metav1.PartialObjectMetadata) {
	return func(o *metav1.PartialObjectMetadata) { o.Labels = map[string]string{key: value} }
}

func noGrace(o *metav1.PartialObjectMetadata) { o.DeletionGracePeriodSeconds = nil }

func TestR18_ObjectIsFinishedWithoutFinalizersAndGrace(t *testing.T) {
	tests := map[string]struct {
		obj      *metav1.PartialObjectMetadata
		strategy Strategy
		want     bool
	}{
		"not being deleted":                    {object(), Strategy{}, false},
		"nothing left":                         {object(deleting(noon, 0)), Strategy{}, true},
		"nothing left, no grace field":         {object(deleting(noon, 0), noGrace), pods(), true},
		"a finalizer is left":                  {object(deleting(noon, 0), finalizers(foreign)), Strategy{}, false},
		"grace is pending":                     {object(deleting(noon, 30)), pods(), false},
		"NS-23 spec.finalizers left":           {object(deleting(noon, 0), label("spec", "kubernetes")), namespaces(), false},
		"NS-23 metadata.finalizers left":       {object(deleting(noon, 0), label("spec", ""), finalizers(foreign)), namespaces(), false},
		"NS-23 both empty":                     {object(deleting(noon, 0), label("spec", "")), namespaces(), true},
		"grace on a kind that is not graceful": {object(deleting(noon, 30)), Strategy{}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Finished(test.obj, test.strategy); got != test.want {
				t.Errorf("Finished = %v, want %v", got, test.want)
			}
		})
	}
}

// NS-23: the write that sets deletionTimestamp also sets the phase; a precondition on the uid is
// always checked.
func TestR21_NamespaceIsMarkedInOneWrite(t *testing.T) {
	stored := object(label("spec", "kubernetes"))
	marked := apply(t, stored, decide(t, stored, &metav1.DeleteOptions{}, namespaces()))
	if marked == nil || marked.DeletionTimestamp == nil || marked.Labels["phase"] != "Terminating" {
		t.Fatalf("marked = %+v, want deletionTimestamp and phase Terminating", marked)
	}
	if again := decide(t, marked, &metav1.DeleteOptions{}, namespaces()); equalPlans(Keep{}, again) != "" {
		t.Errorf("second DELETE = %v, want Keep", again)
	}
	_, err := Decide(stored, metav1.NewPreconditionDeleteOptions("u0"), namespaces(), noon)
	if !apierrors.IsConflict(err) {
		t.Errorf("err with another uid = %v, want a Conflict", err)
	}
}

// The DELETE that marks increments the generation, and no later one does; a kind without a
// generation gets none.
func TestR18_GenerationIsBumpedOnce(t *testing.T) {
	stored := object(finalizers(foreign, metav1.FinalizerDeleteDependents))
	background := &metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
	marked := apply(t, stored, decide(t, stored, &metav1.DeleteOptions{}, Strategy{}))
	again := apply(t, marked, decide(t, marked, background, Strategy{}))
	if marked.Generation != 4 || again.Generation != 4 {
		t.Errorf("generation = %d, then %d, want 4 and 4", marked.Generation, again.Generation)
	}
	if diff := cmp.Diff([]string{foreign}, again.Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	stored.Generation = 0
	if marked := apply(t, stored, decide(t, stored, &metav1.DeleteOptions{}, Strategy{})); marked.Generation != 0 {
		t.Errorf("generation = %d, want 0", marked.Generation)
	}
}

// AS-14 and R20: a Status that names the removed object.
func TestR20_StatusNamesTheRemovedObject(t *testing.T) {
	left := object()
	left.ResourceVersion = "99"
	answer, err := Removed(left, schema.GroupResource{Group: "apps", Resource: "replicasets"})
	want := &metav1.Status{
		ListMeta: metav1.ListMeta{ResourceVersion: "99"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: "web", Group: "apps", Kind: "replicasets", UID: "u1"},
	}
	if diff := cmp.Diff(want, answer); diff != "" || err != nil {
		t.Errorf("err %v, answer (-want +got):\n%s", err, diff)
	}
}

func TestPlanInWords(t *testing.T) {
	for want, plan := range map[string]Plan{
		"remove: nothing to wait for":                                  decide(t, object(), nil, Strategy{}),
		"mark: grace 30 s, finalizers []":                              decide(t, object(), &metav1.DeleteOptions{}, pods()),
		"keep: already being deleted, waits for finalizers " + foreign: decide(t, object(deleting(noon, 0), finalizers(foreign)), nil, Strategy{}),
	} {
		if got := plan.String(); got != want {
			t.Errorf("String = %q, want %q", got, want)
		}
	}
}
