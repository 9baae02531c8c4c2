package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// deletions are checks of the API server's answers to a DELETE.
var deletions = []Check{
	{"AS-01 AS-14 a deleted object is gone with the answer, and a DELETE of a missing one is answered with 404", "R18 R20", 0, func(w *probe.Space) {
		o := w.Create(probe.ConfigMaps, "object")
		answer, err := w.Delete(o, metav1.DeleteOptions{})
		if err != nil {
			w.T.Fatalf("delete %s: %v", o, err)
		}
		if answer.Kind != "Status" || answer.Details == nil || answer.Details.UID != o.UID || answer.Details.Name != o.Name || answer.Details.Kind != o.Kind.Resource {
			w.T.Errorf("want a Status with the name, resource and uid of %s, %s; the answer is %+v", o, o.UID, answer)
		}
		w.Differs(statusHasTheVersion(), func(w *probe.Space) {
			if answer.ResourceVersion == "" {
				w.T.Errorf("want a Status with the resourceVersion of the deletion; it has none")
			}
		})
		if _, ok := w.Look(o); ok {
			w.T.Errorf("want %s to be gone with the answer; it is there", o)
		}
		if _, err := w.Delete(o, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			w.T.Errorf("want 404 for a missing object; the answer is %v", err)
		}
	}},
	{"AS-02 AS-11 a DELETE with preconditions deletes nothing else", "R1 R12 R17 S5", 0, func(w *probe.Space) {
		for _, k := range []probe.Kind{probe.ConfigMaps, probe.ReplicaSets, probe.Pods} {
			conditioned(w, w.Create(k, "object"))
		}
	}},
	{"AS-04 AS-05 an object with finalizers is marked, and goes with the last of them", "R18 R19 R20 S7", 0, func(w *probe.Space) {
		for _, k := range []probe.Kind{probe.ConfigMaps, probe.ReplicaSets} {
			holds(w, w.Create(k, "object", probe.WithFinalizers(probe.Hold, second)))
		}
	}},
	{"AS-04 AS-05 so is a custom resource", "R18 R19 R20 S7", CustomResources, func(w *probe.Space) {
		holds(w, w.Create(w.Define("gizmos"), "object", probe.WithFinalizers(probe.Hold, second)))
	}},
	{"AS-05 a dry run deletes nothing", "R20", 0, func(w *probe.Space) {
		plain, held := w.Create(probe.ConfigMaps, "plain"), w.Create(probe.ConfigMaps, "held", probe.Held)
		for _, o := range []probe.Object{plain, held} {
			w.RemoveWith(o, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		}
		w.AreKept(plain, held)
	}},
	{"AS-09 AS-15 a grace period only shrinks, and the end never moves later", "R17 R19", 0, grace},
	{"AS-13 a collection is deleted as it was selected", "R18 R20", 0, func(w *probe.Space) {
		const label = "conformance.example.com/selected"
		selected := w.CreateMany(4, probe.ConfigMaps, "selected", probe.WithLabel(label, "yes"))
		held := w.Create(probe.ConfigMaps, "held", probe.WithLabel(label, "yes"), probe.Held)
		unselected := w.CreateMany(2, probe.ConfigMaps, "other", probe.WithLabel(label, "no"))
		if err := w.DeleteCollection(probe.ConfigMaps, label+"=yes", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			w.T.Errorf("delete the collection, as a dry run: %v", err)
		}
		w.AreKept(append(selected, held)...)
		if err := w.DeleteCollection(probe.ConfigMaps, label+"=yes", metav1.DeleteOptions{}); err != nil {
			w.T.Errorf("delete the collection: %v", err)
		}
		w.EventuallyGone(selected...)
		if now := w.Must(held); now.DeletionTimestamp == nil {
			w.T.Errorf("want %s to be marked; it is not: %s", held, probe.Describe(now))
		}
		w.AreKept(unselected...)
	}},
	{"AS-16 invalid options and owner references are refused", "R1 R17", 0, func(w *probe.Space) {
		o := w.Create(probe.ConfigMaps, "object")
		for what, options := range map[string]metav1.DeleteOptions{
			"a policy beside orphanDependents": {PropagationPolicy: new(probe.Background), OrphanDependents: new(false)},
			"a policy that does not exist":     probe.Policy("Sideways"),
		} {
			if err := w.TryRemove(o, options); !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
				w.T.Errorf("want %s to be refused with 422; the answer is %v", what, err)
			}
		}
		w.AreKept(o)
		for what, refused := range invalidOwners(o) {
			if err := w.DryCreate(probe.ConfigMaps, "dependent", refused); !apierrors.IsInvalid(err) {
				w.T.Errorf("want %s to be refused with 422; the answer is %v", what, err)
			}
		}
	}},
	{"AS-16 a repeated DELETE may end a foreground deletion, and cannot begin to orphan", "R17 R19", Collector, repeated},
}

// second is a second foreign finalizer.
const second = "conformance.example.com/second"

// conditioned deletes an object with wrong and with right preconditions.
func conditioned(w *probe.Space, o probe.Object) {
	w.T.Helper()
	for what, wrong := range map[string]metav1.Preconditions{
		"another uid":             {UID: new(uuid.NewUUID())},
		"another resourceVersion": {UID: &o.UID, ResourceVersion: new("1")},
	} {
		if err := w.TryRemove(o, metav1.DeleteOptions{Preconditions: &wrong, GracePeriodSeconds: new(int64(0))}); !apierrors.IsConflict(err) {
			w.T.Errorf("want a DELETE of %s with %s to be refused with 409; the answer is %v", o, what, err)
		}
	}
	w.AreKept(o)
	if w.T.Failed() {
		return
	}
	version := w.Must(o).ResourceVersion
	if err := w.TryRemove(o, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &version}}); err != nil && !apierrors.IsConflict(err) {
		w.T.Errorf("delete %s with its uid and resourceVersion: %v", o, err)
	} else if err != nil {
		w.RemoveWith(o, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID}}) // its controller has written its status
	}
	w.EventuallyGone(o)
}

// holds deletes an object with the finalizers Hold and second, and checks that they hold it.
func holds(w *probe.Space, o probe.Object) {
	w.T.Helper()
	before := w.Must(o)
	answer, err := w.Delete(o, metav1.DeleteOptions{})
	if err != nil {
		w.T.Fatalf("delete %s: %v", o, err)
	}
	if answer.UID != o.UID || answer.DeletionTimestamp == nil || answer.DeletionGracePeriodSeconds == nil || *answer.DeletionGracePeriodSeconds != 0 {
		w.T.Errorf("want the answer to be %s, marked and without a grace period; it is %+v", o, answer)
	}
	if before.Generation > 0 && answer.Generation != before.Generation+1 {
		w.T.Errorf("want the mark to be generation %d of %s; it is %d", before.Generation+1, o, answer.Generation)
	}
	w.Must(o)
	w.RemoveWith(o, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), PropagationPolicy: new(probe.Background)})
	_ = w.TryPatch(o, map[string]any{"deletionTimestamp": nil}) // refused or ignored
	if err := w.TryPatch(o, map[string]any{"finalizers": []string{probe.Hold, second, "conformance.example.com/late"}}); err == nil {
		w.T.Errorf("want no finalizer to be added to %s, which is being deleted; one was", o)
	}
	w.LetGo(o, probe.Hold)
	now := w.Must(o)
	if now.DeletionTimestamp == nil || !now.DeletionTimestamp.Equal(answer.DeletionTimestamp) {
		w.T.Errorf("want %s to be deleted since %s; it is since %s", o, answer.DeletionTimestamp, now.DeletionTimestamp)
	}
	if !slices.Equal(now.Finalizers, []string{probe.Hold}) {
		w.T.Errorf("want %s to be held by %s alone; it is by %v", o, probe.Hold, now.Finalizers)
	}
	w.LetGo(o)
	if now, ok := w.Look(o); ok {
		w.T.Errorf("want %s to go with its last finalizer; it is there: %s", o, probe.Describe(now))
	}
}

// grace deletes a pod of a missing node several times, with different grace periods.
func grace(w *probe.Space) {
	pod := w.Create(probe.Pods, "pod", probe.OnNode("nowhere"), probe.Held)
	var end time.Time
	for _, step := range []struct {
		requested, want int64
		moves           time.Duration // by which the end moves
	}{{600, 600, 0}, {900, 600, 0}, {300, 300, -300 * time.Second}, {600, 300, 0}} {
		answer, err := w.Delete(pod, metav1.DeleteOptions{GracePeriodSeconds: &step.requested})
		if err != nil {
			w.T.Fatalf("delete %s: %v", pod, err)
		}
		now := w.Must(pod)
		if now.DeletionTimestamp == nil || now.DeletionGracePeriodSeconds == nil || answer.UID != pod.UID {
			w.T.Fatalf("want %s to be marked; it is %s, and the answer is %+v", pod, probe.Describe(now), answer)
		}
		if got := *now.DeletionGracePeriodSeconds; got != step.want {
			w.T.Errorf("want a grace period of %d s for a request of %d s; it is %d s", step.want, step.requested, got)
		}
		if want := end.Add(step.moves); !end.IsZero() && now.DeletionTimestamp.Sub(want).Abs() > 5*time.Second {
			w.T.Errorf("want the end at %s for a request of %d s; it is at %s", want, step.requested, now.DeletionTimestamp)
		}
		end = now.DeletionTimestamp.Time
	}
	w.RemoveWith(pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	if now := w.Must(pod); !slices.Equal(now.Finalizers, []string{probe.Hold}) {
		w.T.Errorf("want a pod without grace to wait for its finalizer; it has %v", now.Finalizers)
	}
	w.LetGo(pod)
	w.EventuallyGone(pod)
}

// repeated deletes an owner twice while a blocking dependent holds it.
func repeated(w *probe.Space) {
	owner := w.Create(probe.ConfigMaps, "owner", probe.Held)
	dependent := w.Create(probe.ConfigMaps, "dependent", probe.OwnedBy(probe.Blocking(owner)), probe.Held)
	w.Observed(probe.ConfigMaps)
	w.Remove(owner, probe.Foreground)
	w.EventuallyLeaving(dependent)
	w.RemoveWith(owner, metav1.DeleteOptions{})
	w.EventuallyFinalizers(owner, probe.Hold, probe.ForegroundFinalizer)
	w.Differs(repeatedDeletesAddNothing(), func(w *probe.Space) {
		if err := w.TryRemove(owner, probe.Policy(probe.Orphan)); !apierrors.IsInvalid(err) {
			w.T.Errorf("want orphaning to be refused with 422 once the dependents are being deleted; the answer is %v", err)
		}
		w.EventuallyFinalizers(owner, probe.Hold, probe.ForegroundFinalizer)
	})
	w.Remove(owner, probe.Background)
	w.EventuallyFinalizers(owner, probe.Hold)
	w.LetGo(owner)
	w.LetGo(dependent)
	w.EventuallyGone(owner, dependent)
}

// invalidOwners returns owner references that every server refuses, by their mistake.
func invalidOwners(owner probe.Object) map[string]probe.Option {
	nameless, anonymous, kindless := probe.Ref(owner), probe.Ref(owner), probe.Ref(owner)
	nameless.Name, anonymous.UID, kindless.Kind = "", "", ""
	other := probe.Controlled(owner)
	other.UID = uuid.NewUUID()
	return map[string]probe.Option{
		"an owner without a name": probe.OwnedBy(nameless),
		"an owner without a uid":  probe.OwnedBy(anonymous),
		"an owner without a kind": probe.OwnedBy(kindless),
		"two controllers":         probe.OwnedBy(probe.Controlled(owner), other),
	}
}

// policies returns checks of the finalizer that a DELETE adds for the collector.
func policies() []Check {
	type way struct {
		what    string
		options metav1.DeleteOptions
		want    []string // if the object had neither finalizer before, orphan, or foregroundDeletion
	}
	none, orphan, foreground := "", probe.OrphanFinalizer, probe.ForegroundFinalizer
	ways := []way{
		{"nothing", metav1.DeleteOptions{}, []string{none, orphan, foreground}},
		{"orphanDependents", metav1.DeleteOptions{OrphanDependents: new(true)}, []string{orphan, orphan, orphan}},
		{"orphanDependents false", metav1.DeleteOptions{OrphanDependents: new(false)}, []string{none, none, none}},
		{"orphan", probe.Policy(probe.Orphan), []string{orphan, orphan, orphan}},
		{"foreground", probe.Policy(probe.Foreground), []string{foreground, foreground, foreground}},
		{"background", probe.Policy(probe.Background), []string{none, none, none}},
	}
	var all []Check
	for _, way := range ways {
		all = append(all, Check{"AS-06 AS-07 delete with " + way.what, "R17", Collector, func(w *probe.Space) {
			for i, had := range []string{none, orphan, foreground} {
				o := w.Create(probe.ConfigMaps, fmt.Sprint("object-", i), probe.WithFinalizers(slices.DeleteFunc([]string{probe.Hold, had}, isNothing)...))
				isLeftWith(w, o, way.options, way.want[i])
			}
		}})
	}
	return append(all, Check{"AS-08 the kind and version decide the default policy", "R17", Collector, func(w *probe.Space) {
		for kind, want := range map[*probe.Kind]string{
			&probe.ReplicationControllers: orphan, &probe.Jobs: orphan,
			&probe.ReplicaSets: none, &probe.Deployments: none, &probe.CronJobs: none,
		} {
			isLeftWith(w, w.Create(*kind, "object", probe.Held), metav1.DeleteOptions{}, want)
		}
	}})
}

// isLeftWith deletes a held object, and checks the collector's finalizer in the answer.
func isLeftWith(w *probe.Space, o probe.Object, options metav1.DeleteOptions, want string) {
	w.T.Helper()
	answer, err := w.Delete(o, options)
	if err != nil {
		w.T.Fatalf("delete %s: %v", o, err)
	}
	if got := slices.DeleteFunc(answer.Finalizers, func(f string) bool { return f == probe.Hold }); strings.Join(got, " ") != want {
		w.T.Errorf("want %s to be left with the finalizer %q; the answer has %v", o, want, answer.Finalizers)
	}
}
