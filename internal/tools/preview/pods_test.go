package preview_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// The pod garbage collector takes the pods that no node ends: those of a node that the deletion takes, whether or not
// they have an owner that stays, and those that are being deleted on a node that is gone or out of service.
func TestPodGarbageCollectorIsPlayed(t *testing.T) {
	for name, test := range map[string]struct {
		lines    []string
		requests []preview.Request
		want     []string
	}{
		"of a node that goes": {
			[]string{"Node n1", "Node n2", "ConfigMap owner", "Pod a @ n1", "Pod b < owner @ n1", "Pod c @ n2", "ConfigMap d < a"},
			requests("Background", "n1"),
			[]string{"a Deleted by PodGarbageCollector", "b Deleted by PodGarbageCollector", "d Deleted by Collector", "n1 Deleted by User"},
		},
		"of a node that owns the pod, too": {
			[]string{"Node n1", "Pod a < n1 @ n1"},
			requests("Background", "n1"),
			[]string{"a Deleted by Collector", "n1 Deleted by User"},
		},
		"of a node that waits": {
			[]string{"Node n1 # example.com/hold", "Pod a @ n1"},
			requests("Background", "n1"),
			[]string{"n1 Waiting by User for Finalizer example.com/hold[]"},
		},
		"with a finalizer": {
			[]string{"Node n1", "Pod a # example.com/hold @ n1"},
			requests("Background", "n1"),
			[]string{"a Waiting by PodGarbageCollector for Finalizer example.com/hold[]", "n1 Deleted by User"},
		},
		"deleted before, on a node that goes": {
			[]string{"Node lost", "Pod a @ lost"},
			slices.Concat(requests("Background", "a"), requests("Background", "lost")),
			[]string{"a Deleted by User", "lost Deleted by User"},
		},
		"deleted, of a node that is gone": {
			[]string{"Node n1", "Pod a @ n2"},
			requests("Background", "a"),
			[]string{"a Deleted by User"},
		},
		"deleted, of a node out of service": {
			[]string{"Node retired", "Pod a @ retired", "Pod b @ retired"},
			requests("Background", "a"),
			[]string{"a Deleted by User"},
		},
		"protected": {
			[]string{"Node n1", "Pod a always @ n1"},
			requests("Background", "n1"),
			[]string{"a Kept by owners [] protected", "n1 Deleted by User"},
		},
		"who uses a claim": {
			[]string{"Node n1", "PersistentVolumeClaim data # kubernetes.io/pvc-protection", "Pod a @ n1"},
			requests("Background", "data", "n1"),
			[]string{"a Deleted by PodGarbageCollector", "data Deleted by User", "n1 Deleted by User"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inv := cluster(t, test.lines...)
			if pod := inv.Pods["a"]; name == "who uses a claim" {
				pod.Claims = []inventory.Claim{{Name: "data"}}
			}
			options := preview.Options{
				Now: now(),
				Node: func(node string) builtin.NodeState {
					return builtin.NodeState{Exists: true, Ready: !slices.Contains([]string{"lost", "retired"}, node), OutOfService: node == "retired"}
				},
				Protection: func(*inventory.Object) inventory.Fact[inventory.Protection] {
					return inventory.Fact[inventory.Protection]{Value: inventory.Protection{Protection: protection.New(string(protection.Always), ""), Enforced: true}}
				},
			}
			p := preview.New(inv).Predict(test.requests, options)
			if got := told(p); !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
			has := func(why builtin.PodGarbage) bool {
				return slices.ContainsFunc(p.Outcomes, func(o preview.Outcome) bool { return o.Garbage == why })
			}
			text := p.Report(inv).String()
			isGone, isRetired := strings.Contains(text, "gone for 40s"), strings.Contains(text, "collector looks every")
			if isGone != has(builtin.NodeGone) || isRetired != has(builtin.NodeOutOfService) {
				t.Error(text)
			}
			isCollected := isGone || isRetired
			if wants := !strings.Contains(name, "waits") && name != "protected"; isCollected != wants {
				t.Errorf("the pod garbage collector ends a pod: %t, want %t", isCollected, wants)
			}
			if isCollected && p.Grace != 0 {
				t.Errorf("the nodes take %s to end pods that they do not end", p.Grace)
			}
		})
	}
}

// Admission is asked for the user of the pod garbage collector.
func TestPodGarbageCollectorIsRefused(t *testing.T) {
	inv := cluster(t, "Node n1", "Pod a @ n1", "Pod b @ n1")
	question := preview.Question{Requests: requests("Background", "n1"), Judge: labelled{}}
	facts := judgedFacts(inv, map[string]map[string]string{"a": {"denied": "podgc"}, "b": {"denied": "gc"}})
	facts.Nodes["n1"] = inventory.Fact[inventory.Node]{Value: inventory.Node{NodeState: builtin.NodeState{Exists: true, Ready: true}}}
	want := []string{"a Kept refused to PodGarbageCollector", "b Deleted", "n1 Deleted"}
	if got := verdicts(preview.NewPredictor(inv, facts, question).Predict()); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if fate := inv.Object(ownership.UID("a")); fate.Phase != ownership.Active {
		t.Error("the inventory was changed")
	}
}
