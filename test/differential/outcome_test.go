package differential

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coppice-dev/coppice/internal/testing/difference"
)

// outcome is the result of a request: the answer, and the stored objects after it. Objects are
// normalised: values that differ between any two servers are replaced by words.
type outcome struct {
	Code   int
	Reason string
	Answer any
	After  any // nil: the object is not there
}

func (o outcome) diff(other outcome) string { return cmp.Diff(o, other) }

// clone returns a copy that shares nothing with o.
func (o outcome) clone() outcome {
	o.Answer, o.After = runtime.DeepCopyJSONValue(o.Answer), runtime.DeepCopyJSONValue(o.After)
	return o
}

// play sends a request and reads its result.
func (s *apiServer) play(ctx context.Context, r request, m *memory) (outcome, error) {
	path := r.collection()
	if err := s.look(ctx, r, m, path); err != nil {
		return outcome{}, err
	}
	code, answer, err := s.carryOut(ctx, r, m, path)
	if err != nil {
		return outcome{}, err
	}
	result := outcome{Code: code, Answer: difference.Normalised(answer)}
	if answer.GetKind() == "Status" {
		result.Reason, _, _ = unstructured.NestedString(answer.Object, "reason")
	}
	after := (*unstructured.Unstructured)(nil)
	if r.name == "" {
		_, after, err = s.send(ctx, http.MethodGet, path, "", nil)
	} else {
		after, err = s.get(ctx, path+"/"+r.name)
	}
	if err != nil {
		return outcome{}, err
	}
	if after != nil {
		result.After = difference.Normalised(after)
	}
	return result, nil
}

// reconcile removes from a pair of outcomes what docs/semantics.md declares to differ in every
// answer of a kind, if both sides are exactly as declared. Anything else stays in, and is found.
func reconcile(r request, before []unstructured.Unstructured, ours, theirs *outcome) {
	reconcileRemoved(r, before, ours, theirs)
	for _, pair := range [][2]any{{ours.Answer, theirs.Answer}, {ours.After, theirs.After}} {
		reconcileStatus(pair[0], pair[1])
		forObjects(pair[0], pair[1], reconcileNamespace)
		forObjects(pair[0], pair[1], reconcilePod)
	}
}

// reconcileStatus removes error messages, which differ between servers, except for those of
// causes; and the kind of a conflict, for which upstream sometimes names the kind and sometimes
// the resource. k8s.io/apiserver and apiextensions-apiserver validate metadata twice, and name
// each cause twice; ours does so for custom resources only. And a Job whose uid would change has
// labels that do not match its uid: upstream reports that twice, also for the older name of the
// label, and with all labels.
func reconcileStatus(ours, theirs any) {
	for _, side := range []any{ours, theirs} {
		if details, ok := nested(side, "details"); ok {
			if causes, ok := details["causes"].([]any); ok {
				details["causes"] = slices.DeleteFunc(unique(causes), func(cause any) bool {
					field := fmt.Sprint(cause.(map[string]any)["field"])
					return details["kind"] == "Job" && strings.HasPrefix(field, "spec.template.metadata.labels[") && strings.HasSuffix(field, "controller-uid]")
				})
			}
		}
	}
	for _, side := range []any{ours, theirs} {
		status, ok := side.(map[string]any)
		if !ok || status["kind"] != "Status" {
			continue
		}
		delete(status, "message")
		if status["reason"] == string(metav1.StatusReasonConflict) {
			unstructured.RemoveNestedField(status, "details", "kind")
		}
	}
}

// nested returns the object below a key of an object.
func nested(value any, key string) (map[string]any, bool) {
	object, _ := value.(map[string]any)
	below, ok := object[key].(map[string]any)
	return below, ok
}

// unique returns a list without duplicates.
func unique(list []any) []any {
	var kept []any
	for _, item := range list {
		if !slices.ContainsFunc(kept, func(k any) bool { return cmp.Equal(k, item) }) {
			kept = append(kept, item)
		}
	}
	return kept
}

// forObjects calls reconcile with the objects in a pair of answers, or in their lists.
func forObjects(ours, theirs any, reconcile func(ours, theirs map[string]any)) {
	o, _ := ours.(map[string]any)
	t, _ := theirs.(map[string]any)
	if o == nil || t == nil {
		return
	}
	reconcile(o, t)
	ourItems, _ := o["items"].([]any)
	theirItems, _ := t["items"].([]any)
	for i := range min(len(ourItems), len(theirItems)) {
		reconcile(ourItems[i].(map[string]any), theirItems[i].(map[string]any))
	}
}

// reconcilePod is about the service account, which ours gives to every pod. Upstream's admission
// plug-in ServiceAccount is off in these tests, because it requires the accounts to exist.
func reconcilePod(ours, theirs map[string]any) {
	for _, key := range []string{"serviceAccount", "serviceAccountName"} {
		account, _, _ := unstructured.NestedString(ours, "spec", key)
		if _, has, _ := unstructured.NestedString(theirs, "spec", key); !has && account == "default" {
			unstructured.RemoveNestedField(ours, "spec", key)
		}
	}
}

// reconcileNamespace is about terminating namespaces: ours have a grace period of 0, like every
// other kind, upstream's have none; and upstream puts the collector's finalizer in another
// position of the list than for every other kind.
func reconcileNamespace(ours, theirs map[string]any) {
	if ours["kind"] != "Namespace" || theirs["kind"] != "Namespace" {
		return
	}
	om, tm := ours["metadata"].(map[string]any), theirs["metadata"].(map[string]any)
	_, has := tm["deletionGracePeriodSeconds"]
	if om["deletionTimestamp"] != nil && om["deletionGracePeriodSeconds"] == int64(0) && !has {
		delete(om, "deletionGracePeriodSeconds")
	}
	for _, m := range []map[string]any{om, tm} {
		if finalizers, ok := m["finalizers"].([]any); ok {
			slices.SortFunc(finalizers, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
	}
}

// reconcileRemoved is about a DELETE that removes an object and returns it: ours returns the
// object as it was last stored (R20), upstream's has the mark that it has stored just before.
func reconcileRemoved(r request, before []unstructured.Unstructured, ours, theirs *outcome) {
	dryRun := r.options != nil && len(r.options.DryRun) > 0
	if r.verb != "delete" || ours.Code != http.StatusOK || theirs.Code != http.StatusOK || len(before) != 1 || ours.After != nil && !dryRun {
		return
	}
	o, t := ours.Answer.(map[string]any), theirs.Answer.(map[string]any)
	if o["kind"] != r.kind.kind || t["kind"] != r.kind.kind || !cmp.Equal(o, difference.Normalised(&before[0])) {
		return
	}
	for _, answer := range []map[string]any{o, t} {
		m := answer["metadata"].(map[string]any)
		for _, mark := range []string{"deletionTimestamp", "deletionGracePeriodSeconds", "generation", "finalizers"} {
			delete(m, mark)
		}
	}
}
