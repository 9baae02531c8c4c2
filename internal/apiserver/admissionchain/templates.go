package admissionchain

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// entriesIn returns the entries of all annotations of R28 in an object: in its metadata and in the metadata of all
// templates that it contains, each once. A list that cannot be parsed has no entries; it protects as always.
func entriesIn(obj runtime.Object) []protection.Outlived {
	var entries []protection.Outlived
	seen := map[protection.Outlived]bool{}
	found := func(annotation string) {
		others, _ := protection.ParseOutlives(annotation)
		for _, o := range others {
			if !seen[o] {
				seen[o] = true
				entries = append(entries, o)
			}
		}
	}
	switch o := obj.(type) {
	case nil:
	case *unstructured.Unstructured:
		visitJSON(o.Object, found)
	default:
		visit(reflect.ValueOf(obj), found)
	}
	return entries
}

// visitJSON calls found with the values of the annotation in a decoded object.
func visitJSON(value any, found func(string)) {
	switch v := value.(type) {
	case map[string]any:
		if annotation, ok := v[protection.Annotation].(string); ok {
			found(annotation)
		}
		for _, field := range v {
			visitJSON(field, found)
		}
	case []any:
		for _, element := range v {
			visitJSON(element, found)
		}
	}
}

var (
	metadataType = reflect.TypeFor[metav1.ObjectMeta]()
	rawType      = reflect.TypeFor[runtime.RawExtension]()
)

// visit calls found with the values of the annotation in a typed object.
func visit(v reflect.Value, found func(string)) {
	switch v.Type() {
	case metadataType:
		if annotation, ok := v.Interface().(metav1.ObjectMeta).Annotations[protection.Annotation]; ok {
			found(annotation)
		}
		return
	case rawType:
		visitRaw(v.Interface().(runtime.RawExtension).Raw, found)
		return
	}
	if !mayContain(v.Type()) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			visit(v.Elem(), found)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			visit(field, found)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			visit(v.Index(i), found)
		}
	case reflect.Map:
		for _, element := range v.Seq2() {
			visit(element, found)
		}
	default:
	}
}

// visitRaw is like visit, for the template in a ControllerRevision.
func visitRaw(raw []byte, found func(string)) {
	if !bytes.Contains(raw, []byte(protection.Annotation)) {
		return
	}
	var value any
	if err := json.Unmarshal(raw, &value); err == nil {
		visitJSON(value, found)
	}
}

// contains caches whether values of a type may contain metadata.
var contains sync.Map

// mayContain reports whether values of a type may contain metadata of an object or of a template.
func mayContain(t reflect.Type) bool {
	if known, ok := contains.Load(t); ok {
		return known.(bool)
	}
	may := reaches(t, map[reflect.Type]bool{})
	contains.Store(t, may)
	return may
}

// reaches reports whether a type contains metadata, apart from the visited types.
func reaches(t reflect.Type, visited map[reflect.Type]bool) bool {
	if t == metadataType || t == rawType {
		return true
	}
	if visited[t] {
		return false
	}
	visited[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return reaches(t.Elem(), visited)
	case reflect.Struct:
		return slices.ContainsFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return f.IsExported() && reaches(f.Type, visited) })
	default:
		return false
	}
}
