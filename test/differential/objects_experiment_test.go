package differential

import (
	"regexp"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/testing/variation"
)

// experiment is an experiment as the declarations of objects_declared_test.go see it, which are to move to
// testdata/declared.yaml.
type experiment struct {
	kind struct {
		gvk  schema.GroupVersionKind
		base map[string]any
	}
	verb    string
	changes []change
}

type change struct{ path string }

func experimentOf(e variation.Experiment) experiment {
	seen := experiment{verb: e.Verb}
	seen.kind.gvk, seen.kind.base = e.Kind.GVK, e.Kind.Base
	for _, c := range e.Changes {
		seen.changes = append(seen.changes, change{c.Place()})
	}
	return seen
}

var indexes = regexp.MustCompile(`\[[0-9]+\]`)

func written(path string) string { return path }
