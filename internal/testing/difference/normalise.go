package difference

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

var (
	uuids  = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	digits = regexp.MustCompile(`[0-9]+`)
)

// Normalised returns a copy of a whole object, list or Status in which uids and times are
// words, and resource versions are left out.
func Normalised(o *unstructured.Unstructured) map[string]any {
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
		// Messages name resource versions, which differ between servers.
		if message, ok := content["message"].(string); ok {
			content["message"] = digits.ReplaceAllString(uuids.ReplaceAllString(message, "(other uid)"), "(number)")
		}
	}
	return replaced(content, uid).(map[string]any)
}

// replaced replaces uid and all times by words, at any depth.
func replaced(value any, uid string) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = replaced(v[key], uid)
		}
		if entries, ok := v["managedFields"].([]any); ok {
			sortByContent(entries)
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

// sortByContent sorts managed fields by their contents, because their times are replaced: servers
// sort them by the second of the write, and two writes may fall into the same second on only one of
// the servers.
func sortByContent(entries []any) {
	slices.SortFunc(entries, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
}
