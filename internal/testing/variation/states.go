package variation

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// State is an object, and the requests that bring it into the state.
type State struct {
	Name   string         `json:"name"`
	Object map[string]any `json:"object"`
	Steps  []Step         `json:"steps"`
}

// Step is a request about the object of a state.
type Step struct {
	To     string         `json:"to"`     // the subresource
	Patch  map[string]any `json:"patch"`  // a merge patch
	Post   map[string]any `json:"post"`   // the body of a POST
	Delete bool           `json:"delete"` // a DELETE of the object
}

// ReadStates returns the states in a file, by the kind of their objects.
func ReadStates(file string) (map[schema.GroupVersionKind][]State, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	states := map[schema.GroupVersionKind][]State{}
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		var s State
		if err := decoder.Decode(&s); errors.Is(err, io.EOF) {
			return states, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		key := (&unstructured.Unstructured{Object: s.Object}).GroupVersionKind()
		states[key] = append(states[key], s)
	}
}

// In returns the kind with the object of a state in place of the valid one.
func (k *Kind) In(s State) *Kind {
	changed := *k
	changed.Put(&unstructured.Unstructured{Object: numbers(s.Object).(map[string]any)})
	changed.State = &s
	return &changed
}

// numbers converts the whole numbers of a YAML decoder to the type in unstructured objects.
func numbers(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = numbers(value[key])
		}
	case []any:
		for i := range value {
			value[i] = numbers(value[i])
		}
	case float64:
		if value == math.Trunc(value) {
			return int64(value)
		}
	}
	return value
}
