package systemobjects

import (
	"context"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// written records the last write.
type written struct {
	verb   string
	schema *flowcontrolv1.FlowSchema
}

func (w *written) Create(_ context.Context, s *flowcontrolv1.FlowSchema, _ metav1.CreateOptions) (*flowcontrolv1.FlowSchema, error) {
	w.verb, w.schema = "create", s
	return s, nil
}

func (w *written) Update(_ context.Context, s *flowcontrolv1.FlowSchema, _ metav1.UpdateOptions) (*flowcontrolv1.FlowSchema, error) {
	w.verb, w.schema = "update", s
	return s, nil
}

// Mandatory objects always have the default spec. Others follow their annotation or, without one, their
// generation, and are annotated accordingly.
func TestMandatoryObjectsHaveTheDefaultSpec(t *testing.T) {
	schema := func(precedence int32, annotation string, generation int64) *flowcontrolv1.FlowSchema {
		s := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "x", Generation: generation}}
		s.Spec.MatchingPrecedence = precedence
		if annotation != "" {
			s.Annotations = map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: annotation, "other": "kept"}
		}
		return s
	}
	for name, test := range map[string]struct {
		stored     *flowcontrolv1.FlowSchema
		mandatory  bool
		verb       string
		precedence int32
		annotation string
	}{
		"missing":                             {nil, false, "create", 1, "true"},
		"missing, mandatory":                  {nil, true, "create", 1, "true"},
		"as it should be":                     {schema(1, "true", 1), false, "", 0, ""},
		"another spec, mandatory":             {schema(2, "true", 2), true, "update", 1, "true"},
		"an administrator's, mandatory":       {schema(2, "false", 2), true, "update", 1, "true"},
		"another annotation, mandatory":       {schema(1, "false", 2), true, "update", 1, "true"},
		"another spec, followed":              {schema(2, "true", 2), false, "update", 1, "true"},
		"an administrator's":                  {schema(2, "false", 2), false, "", 0, ""},
		"an administrator's, annotated so":    {schema(2, "F", 2), false, "", 0, ""},
		"without annotation, changed":         {schema(2, "", 2), false, "update", 2, "false"},
		"without annotation, never changed":   {schema(2, "", 1), false, "update", 1, "true"},
		"an annotation that says nothing":     {schema(2, "perhaps", 2), false, "update", 2, "false"},
		"without annotation, as it should be": {schema(1, "", 1), false, "update", 1, "true"},
	} {
		t.Run(name, func(t *testing.T) {
			var w written
			k := flowKind[*flowcontrolv1.FlowSchema]{
				client: &w, defaults: func(runtime.Object) {}, clone: (*flowcontrolv1.FlowSchema).DeepCopy,
				get: func(string) (*flowcontrolv1.FlowSchema, error) {
					if test.stored == nil {
						return nil, apierrors.NewNotFound(flowcontrolv1.Resource("flowschemas"), "x")
					}
					return test.stored, nil
				},
				same: func(a, b *flowcontrolv1.FlowSchema) bool {
					return a.Spec.MatchingPrecedence == b.Spec.MatchingPrecedence
				},
				replace: func(to, from *flowcontrolv1.FlowSchema) { to.Spec = from.Spec },
			}
			if err := k.ensure(t.Context(), schema(1, "true", 0), test.mandatory); err != nil || w.verb != test.verb {
				t.Fatalf("%q %v, want %q", w.verb, err, test.verb)
			}
			if w.schema == nil {
				return
			}
			if got := w.schema.Annotations[flowcontrolv1.AutoUpdateAnnotationKey]; got != test.annotation || w.schema.Spec.MatchingPrecedence != test.precedence {
				t.Errorf("%d %q", w.schema.Spec.MatchingPrecedence, got)
			}
			if test.stored != nil && test.stored.Annotations["other"] != w.schema.Annotations["other"] {
				t.Errorf("another annotation changed: %v", w.schema.Annotations)
			}
		})
	}
}
