package differential

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

var (
	uuids  = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	digits = regexp.MustCompile(`[0-9]+`)
)

// outcome is what came of a request: the answer, and what is stored after it. Objects are
// normalised: what no two servers have in common is replaced by a word.
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

// play sends a request and reads what it left behind.
func (s *apiServer) play(ctx context.Context, r request, m *memory) (outcome, error) {
	path := r.collection()
	if err := s.look(ctx, r, m, path); err != nil {
		return outcome{}, err
	}
	code, answer, err := s.carryOut(ctx, r, m, path)
	if err != nil {
		return outcome{}, err
	}
	result := outcome{Code: code, Answer: normalised(answer)}
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
		result.After = normalised(after)
	}
	return result, nil
}

// normalised returns a copy of a whole object, list or Status in which uids and times are
// words, and resource versions are left out.
func normalised(o *unstructured.Unstructured) map[string]any {
	content := runtime.DeepCopyJSON(o.Object)
	if items, ok := content["items"].([]any); ok {
		for i := range items {
			items[i] = normalisedObject(items[i].(map[string]any))
		}
	}
	return normalisedObject(content)
}

func normalisedObject(content map[string]any) map[string]any {
	uid, _, _ := unstructured.NestedString(content, "metadata", "uid")
	unstructured.RemoveNestedField(content, "metadata", "resourceVersion")
	if content["kind"] == "Status" {
		uid, _, _ = unstructured.NestedString(content, "details", "uid")
		// Messages name resource versions, which are each server's own.
		if message, ok := content["message"].(string); ok {
			content["message"] = digits.ReplaceAllString(uuids.ReplaceAllString(message, "(other uid)"), "(number)")
		}
	}
	return replaced(content, uid).(map[string]any)
}

// replaced puts words in the place of uid and of all times, however deep they are.
func replaced(value any, uid string) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = replaced(v[key], uid)
		}
	case []any:
		for i := range v {
			v[i] = replaced(v[i], uid)
		}
	case string:
		if uid != "" {
			v = strings.ReplaceAll(v, uid, "(uid)")
		}
		v = uuids.ReplaceAllString(v, "(other uid)")
		if _, err := time.Parse(time.RFC3339, v); err == nil {
			v = "(time)"
		}
		return v
	}
	return value
}

// reconcile takes out of a pair of outcomes what docs/semantics.md declares to differ in
// every answer of a kind, where both sides are exactly as declared. What is not stays in,
// and is found.
func reconcile(r request, before []unstructured.Unstructured, ours, theirs *outcome) {
	reconcileRemoved(r, before, ours, theirs)
	for _, pair := range [][2]any{{ours.Answer, theirs.Answer}, {ours.After, theirs.After}} {
		reconcileStatus(pair[0], pair[1])
		forObjects(pair[0], pair[1], reconcileNamespace)
		forObjects(pair[0], pair[1], reconcilePod)
	}
}

// reconcileStatus leaves out the words of errors, which are each server's own, but for those
// of causes; and the kind of a conflict, where upstream names now the kind and now the
// resource. k8s.io/apiserver and apiextensions-apiserver validate metadata twice, and name
// each cause twice, which ours does for custom resources only. And a Job whose uid would change
// has other labels than its uid says: upstream names that twice, by the older name of the
// label too, and with all labels.
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

// unique returns a list without what was in it before.
func unique(list []any) []any {
	var kept []any
	for _, item := range list {
		if !slices.ContainsFunc(kept, func(k any) bool { return cmp.Equal(k, item) }) {
			kept = append(kept, item)
		}
	}
	return kept
}

// forObjects calls reconcile with the objects of a pair of answers, or of the lists that
// they are.
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

// reconcilePod is about the service account, which ours gives to every pod. Upstream's
// admission ServiceAccount is off where this runs, as it wants the accounts to be there.
func reconcilePod(ours, theirs map[string]any) {
	for _, key := range []string{"serviceAccount", "serviceAccountName"} {
		account, _, _ := unstructured.NestedString(ours, "spec", key)
		if _, has, _ := unstructured.NestedString(theirs, "spec", key); !has && account == "default" {
			unstructured.RemoveNestedField(ours, "spec", key)
		}
	}
}

// reconcileNamespace is about terminating namespaces: ours have a grace period of 0, as
// every other kind has, upstream's none; and upstream puts the collector's finalizer in
// another place of the list than on every other kind.
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

// reconcileRemoved is about a DELETE that removes an object and answers with it: ours is
// as it was stored last (R20), upstream's has a mark that was never stored.
func reconcileRemoved(r request, before []unstructured.Unstructured, ours, theirs *outcome) {
	dryRun := r.options != nil && len(r.options.DryRun) > 0
	if r.verb != "delete" || ours.Code != http.StatusOK || theirs.Code != http.StatusOK || len(before) != 1 || ours.After != nil && !dryRun {
		return
	}
	o, t := ours.Answer.(map[string]any), theirs.Answer.(map[string]any)
	if o["kind"] != r.kind.kind || t["kind"] != r.kind.kind || !cmp.Equal(o, normalised(&before[0])) {
		return
	}
	for _, answer := range []map[string]any{o, t} {
		m := answer["metadata"].(map[string]any)
		for _, mark := range []string{"deletionTimestamp", "deletionGracePeriodSeconds", "generation", "finalizers"} {
			delete(m, mark)
		}
	}
}
