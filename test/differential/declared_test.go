package differential

import (
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// declared returns the line of docs/semantics.md, "Differences from upstream", that permits
// upstream to differ from our server here, or "". The line is about upstream; our server's own
// behaviour is checked against the rules (promise_test.go).
func declared(r request, before []unstructured.Unstructured, ours, theirs outcome) string {
	if r.verb != "delete" && r.verb != "deletecollection" {
		return ""
	}
	if r.options == nil {
		r.options = &metav1.DeleteOptions{}
	}
	if len(r.options.DryRun) > 0 && isBlank(theirs.Answer) {
		return "a dry run of a DELETE that would remove the object answers as the DELETE would"
	}
	if r.version == "current" && ours.Code == http.StatusOK && theirs.Code == http.StatusConflict {
		return "R17: a resourceVersion is checked with the object; where the options remove its last finalizer, upstream compares it with an empty one"
	}
	isOfActiveNamespace := r.kind.kind == "Namespace" && theirs.Code == http.StatusOK && isActive(before)
	if isOfActiveNamespace && theirs.After != nil && (ours.After == nil || len(r.options.DryRun) > 0 && isFree(&before[0])) {
		return "R18: a namespace that nothing holds goes with the first DELETE"
	}
	for i := range before {
		if before[i].GetDeletionTimestamp() == nil {
			continue
		}
		if r.kind.kind == "Namespace" && ours.Code == http.StatusOK && theirs.Code == http.StatusConflict {
			return "R20: a repeated DELETE of a namespace is answered as one of anything else, not with a conflict"
		}
		if reason := declaredOfRepeated(r.kind, r.options, &before[i]); reason != "" {
			return reason
		}
	}
	return ""
}

// declaredOfRepeated covers a DELETE of an object that is already terminating (R19).
func declaredOfRepeated(k kind, options *metav1.DeleteOptions, before *unstructured.Unstructured) string {
	finalizers, grace := before.GetFinalizers(), before.GetDeletionGracePeriodSeconds()
	held := slices.Contains(finalizers, orphan) || slices.Contains(finalizers, foreground)
	asksNothing := options.PropagationPolicy == nil && options.OrphanDependents == nil
	switch {
	case asksNothing && !held && (k.kind == "Job" || k.kind == "ReplicationController"):
		return "R19: a repeated DELETE adds no finalizer, not even that of the default"
	case k.kind == "Namespace" && held && !asksNothing:
		return "R19: a repeated DELETE may remove the collector's finalizer from a namespace"
	case grace != nil && *grace > 0 && held && !asksNothing:
		return "R19: a repeated DELETE may remove the collector's finalizer while grace is pending"
	case asks(options, metav1.DeletePropagationOrphan, true) && !slices.Contains(finalizers, orphan):
		return "R19: a repeated DELETE adds no finalizer, and orphan is refused"
	case asks(options, metav1.DeletePropagationForeground, false) && !slices.Contains(finalizers, foreground):
		return "R19: a repeated DELETE adds no finalizer, and foreground does without"
	}
	return ""
}

// isActive reports whether there is one object, and it is not being deleted.
func isActive(before []unstructured.Unstructured) bool {
	return len(before) == 1 && before[0].GetDeletionTimestamp() == nil
}

// isFree reports whether a namespace has no finalizers, of either kind.
func isFree(namespace *unstructured.Unstructured) bool {
	finalizers, _, _ := unstructured.NestedSlice(namespace.Object, "spec", "finalizers")
	return len(finalizers)+len(namespace.GetFinalizers()) == 0
}

// isBlank reports whether an answer is an object without a name.
func isBlank(answer any) bool {
	o, ok := answer.(map[string]any)
	if !ok || o["kind"] == "Status" || o["items"] != nil {
		return false
	}
	m, _ := o["metadata"].(map[string]any)
	return m["name"] == nil
}

// asks reports whether the options ask for a policy; orphans is the value of orphanDependents
// then.
func asks(o *metav1.DeleteOptions, policy metav1.DeletionPropagation, orphans bool) bool {
	if o.PropagationPolicy != nil {
		return *o.PropagationPolicy == policy
	}
	return o.OrphanDependents != nil && *o.OrphanDependents == orphans
}
