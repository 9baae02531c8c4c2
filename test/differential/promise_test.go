package differential

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/coppice-dev/coppice/internal/testing/difference"
)

// The rules R17 to R20 of docs/semantics.md, stated a second time: how our server has to answer a
// DELETE that upstream answers differently. Nothing here is shared with internal/rules/deletion.

// promise is the required effect of a DELETE on one object.
type promise struct {
	refused string // the option that is refused; empty: none is
	after   *unstructured.Unstructured
}

// policyOf returns the policy that options ask for, and the option that sets it; empty for none.
func policyOf(k kind, o *metav1.DeleteOptions) (policy metav1.DeletionPropagation, option string) {
	switch {
	case o.PropagationPolicy != nil:
		return *o.PropagationPolicy, "propagationPolicy"
	case o.OrphanDependents == nil:
		return "", ""
	case *o.OrphanDependents:
		return metav1.DeletePropagationOrphan, "orphanDependents"
	case k.kind == "Namespace":
		return metav1.DeletePropagationForeground, "orphanDependents"
	}
	return metav1.DeletePropagationBackground, "orphanDependents"
}

// promised returns the required state of an object.
func promised(k kind, o *metav1.DeleteOptions, before *unstructured.Unstructured) promise {
	if before.GetDeletionTimestamp() == nil {
		return promise{after: first(k, o, before)}
	}
	policy, option := policyOf(k, o)
	finalizers := before.GetFinalizers()
	drop := []string(nil)
	switch policy {
	case metav1.DeletePropagationOrphan:
		if !slices.Contains(finalizers, orphan) {
			return promise{refused: option, after: before}
		}
		drop = []string{foreground}
	case metav1.DeletePropagationForeground:
		drop = []string{orphan}
	case metav1.DeletePropagationBackground:
		drop = []string{orphan, foreground}
	}
	after := before.DeepCopy()
	setFinalizers(after, without(finalizers, drop...))
	if stored := before.GetDeletionGracePeriodSeconds(); o.GracePeriodSeconds != nil && k.kind == "Pod" {
		after.SetDeletionGracePeriodSeconds(new(min(*stored, normalGrace(*o.GracePeriodSeconds))))
	}
	return promise{after: unlessFinished(after)}
}

// first returns the object after the DELETE that begins its deletion; nil when it is gone.
func first(k kind, o *metav1.DeleteOptions, before *unstructured.Unstructured) *unstructured.Unstructured {
	policy, _ := policyOf(k, o)
	finalizers := before.GetFinalizers()
	switch {
	case policy != "":
	case slices.Contains(finalizers, orphan):
		policy = metav1.DeletePropagationOrphan
	case slices.Contains(finalizers, foreground):
		policy = metav1.DeletePropagationForeground
	case k.kind == "Job" || k.kind == "ReplicationController":
		policy = metav1.DeletePropagationOrphan
	}
	wanted := map[metav1.DeletionPropagation]string{metav1.DeletePropagationOrphan: orphan, metav1.DeletePropagationForeground: foreground}[policy]
	after := before.DeepCopy()
	finalizers = without(finalizers, slices.DeleteFunc([]string{orphan, foreground}, func(f string) bool { return f == wanted })...)
	if wanted != "" && !slices.Contains(finalizers, wanted) {
		finalizers = append(finalizers, wanted)
	}
	setFinalizers(after, finalizers)
	grace := int64(0)
	if node, _, _ := unstructured.NestedString(before.Object, "spec", "nodeName"); k.kind == "Pod" && node != "" {
		grace, _, _ = unstructured.NestedInt64(before.Object, "spec", "terminationGracePeriodSeconds")
		if o.GracePeriodSeconds != nil {
			grace = normalGrace(*o.GracePeriodSeconds)
		}
	}
	after.SetDeletionTimestamp(new(metav1.Now()))
	after.SetDeletionGracePeriodSeconds(&grace)
	if generation := before.GetGeneration(); generation > 0 {
		after.SetGeneration(generation + 1)
	}
	if k.kind == "Namespace" {
		_ = unstructured.SetNestedField(after.Object, "Terminating", "status", "phase")
	}
	return unlessFinished(after)
}

// unlessFinished returns nil for a terminating object that waits for nothing.
func unlessFinished(o *unstructured.Unstructured) *unstructured.Unstructured {
	own, _, _ := unstructured.NestedSlice(o.Object, "spec", "finalizers")
	if len(o.GetFinalizers()) == 0 && *o.GetDeletionGracePeriodSeconds() == 0 && len(own) == 0 {
		return nil
	}
	return o
}

func normalGrace(seconds int64) int64 {
	if seconds < 0 {
		return 1
	}
	return seconds
}

func without(list []string, drop ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(drop, s) })
}

func setFinalizers(o *unstructured.Unstructured, finalizers []string) {
	if len(finalizers) == 0 {
		unstructured.RemoveNestedField(o.Object, "metadata", "finalizers")
		return
	}
	o.SetFinalizers(finalizers)
}

// checkPromise compares our server's outcome with the outcome that the rules promise.
func checkPromise(r request, before []unstructured.Unstructured, ours outcome) error {
	if r.options == nil {
		r.options = &metav1.DeleteOptions{}
	}
	if r.verb == "deletecollection" {
		return checkCollection(r, before, ours)
	}
	if len(before) != 1 {
		return fmt.Errorf("a DELETE of %d objects is answered %d", len(before), ours.Code)
	}
	p := promised(r.kind, r.options, &before[0])
	want := outcome{Code: http.StatusOK, Answer: answerOf(r, p, &before[0])}
	if p.refused != "" {
		want = refusal(r, &before[0], p.refused)
	}
	if p.after != nil {
		want.After = difference.Normalised(p.after)
		if p.refused == "" && r.options.OrphanDependents != nil && !*r.options.OrphanDependents {
			want.Code = http.StatusAccepted // of all that wait, only those that asked in the old way are told so
		}
	}
	if len(r.options.DryRun) > 0 {
		want.After = difference.Normalised(&before[0])
	}
	if status, ok := ours.Answer.(map[string]any); ok && status["kind"] == "Status" {
		ours.Answer = withoutWords(status)
	}
	return differs(want, ours)
}

func differs(want, got outcome) error {
	if diff := want.diff(got); diff != "" {
		return fmt.Errorf("ours is not what docs/semantics.md promises (-promised +ours):\n%s", diff)
	}
	return nil
}

// answerOf returns the answer to a DELETE that is not refused (R20).
func answerOf(r request, p promise, before *unstructured.Unstructured) map[string]any {
	switch {
	case p.after != nil:
		return difference.Normalised(p.after)
	case r.kind.kind == "Pod" || r.kind.kind == "Namespace":
		return difference.Normalised(before)
	}
	details := map[string]any{"name": r.name, "kind": r.kind.resource, "uid": "(uid)"}
	if group := before.GroupVersionKind().Group; group != "" {
		details["group"] = group
	}
	return map[string]any{"apiVersion": "v1", "kind": "Status", "metadata": map[string]any{}, "status": "Success", "details": details}
}

// refusal returns the outcome of a policy that a terminating object can no longer have (R19).
func refusal(r request, before *unstructured.Unstructured, option string) outcome {
	return outcome{
		Code: http.StatusUnprocessableEntity, Reason: string(metav1.StatusReasonInvalid), After: difference.Normalised(before),
		Answer: map[string]any{
			"apiVersion": "v1", "kind": "Status", "metadata": map[string]any{}, "status": "Failure", "code": int64(http.StatusUnprocessableEntity),
			"reason": string(metav1.StatusReasonInvalid),
			"details": map[string]any{
				"group": metav1.GroupName, "kind": "DeleteOptions",
				"causes": []any{map[string]any{"reason": string(metav1.CauseTypeForbidden), "field": option}},
			},
		},
	}
}

// withoutWords returns a Status without its messages.
func withoutWords(status map[string]any) map[string]any {
	status = maps.Clone(status)
	delete(status, "message")
	details, ok := status["details"].(map[string]any)
	if !ok {
		return status
	}
	details = maps.Clone(details)
	if causes, ok := details["causes"].([]any); ok {
		causes = slices.Clone(causes)
		for i := range causes {
			cause := maps.Clone(causes[i].(map[string]any))
			delete(cause, "message")
			causes[i] = cause
		}
		details["causes"] = causes
	}
	status["details"] = details
	return status
}

// checkCollection is checkPromise for a DELETE of a collection: it continues when an object is
// refused, and then returns the first refusal (R20).
func checkCollection(r request, before []unstructured.Unstructured, ours outcome) error {
	selected, err := labels.Parse(r.selector)
	if err != nil {
		return err
	}
	after, code := map[string]any{}, http.StatusOK
	for i := range before {
		o := &before[i]
		left := o
		if selected.Matches(labels.Set(o.GetLabels())) {
			p := promised(r.kind, r.options, o)
			left = p.after
			if p.refused != "" {
				code = http.StatusUnprocessableEntity
			}
		}
		if len(r.options.DryRun) > 0 {
			left = o
		}
		if left != nil {
			after[o.GetName()] = metadataOf(difference.Normalised(left))
		}
	}
	got := map[string]any{}
	items, _ := ours.After.(map[string]any)["items"].([]any)
	for _, item := range items {
		m := metadataOf(item)
		got[fmt.Sprint(m["name"])] = m
	}
	if ours.Code != code {
		return fmt.Errorf("ours answers a DELETE of a collection with %d, not with %d", ours.Code, code)
	}
	if diff := cmp.Diff(after, got); diff != "" {
		return fmt.Errorf("ours leaves of a collection what docs/semantics.md does not promise (-promised +ours):\n%s", diff)
	}
	return nil
}

func metadataOf(object any) map[string]any {
	m, _ := object.(map[string]any)["metadata"].(map[string]any)
	return m
}
