package difference

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// conditionsOf returns an object with conditions of the types.
func conditionsOf(types ...any) map[string]any {
	var conditions []any
	for _, name := range types {
		conditions = append(conditions, map[string]any{"type": name})
	}
	return map[string]any{"status": map[string]any{"conditions": conditions}}
}

func TestConditionsThatServersSetAreRemoved(t *testing.T) {
	ours, theirs := conditionsOf("Dangling", "Mine"), conditionsOf("Mine")
	Reconcile("FlowSchema", ours, theirs)
	if diff := cmp.Diff(ours, theirs); diff != "" {
		t.Errorf("one server has found out whether the schema dangles:\n%s", diff)
	}
	ours, theirs = conditionsOf("Available"), map[string]any{"status": map[string]any{}}
	Reconcile("APIService", ours, theirs)
	if diff := cmp.Diff(ours, theirs); diff != "" {
		t.Errorf("one server has asked the other one:\n%s", diff)
	}
	ours, theirs = conditionsOf("Available"), conditionsOf()
	Reconcile("Deployment", ours, theirs)
	if cmp.Equal(ours, theirs) {
		t.Error("conditions of a Deployment are the client's")
	}
}

func TestNamesOfAPIServicesThatServersMakeUpAreTheSame(t *testing.T) {
	ours := withoutChoices("Invalid value: \"ajq7c9\": must be `spec.version+\".\"+spec.group`: \"v1.a.com\"")
	theirs := withoutChoices("Invalid value: \"aq66nz\": must be `spec.version+\".\"+spec.group`: \"v1.a.com\"")
	if ours != theirs {
		t.Errorf("%q, %q", ours, theirs)
	}
}
