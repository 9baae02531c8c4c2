package builtin

import (
	"slices"
	"testing"

	builtinrules "github.com/coppice-dev/coppice/internal/rules/builtin"
)

// The classes that every cluster has are those that the rules of deletion keep.
func TestSystemPriorityClassesAreKept(t *testing.T) {
	var names []string
	for _, class := range SystemPriorityClasses() {
		names = append(names, class.Name)
	}
	if kept := builtinrules.KeptPriorityClasses(); !slices.Equal(names, kept) {
		t.Errorf("%v are made, %v are kept", names, kept)
	}
}
