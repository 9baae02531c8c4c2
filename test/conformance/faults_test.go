package conformance

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/cli/conformance"
	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// fault is something that a server or its controllers do wrong.
type fault struct {
	name string
	rule string // that it breaks
	run  string // the checks that notice
	says string // what they say: a regular expression
	// server and controllers stand between the checks and the server, and between the collector
	// and the namespace controller and the server; nil if nothing is wrong there.
	server, controllers func() middle
}

// faults are planted one at a time. Each breaks one rule.
var faults = []fault{
	{
		name: "a DELETE ignores its preconditions", rule: "R17", run: "^AS-02",
		says:   "with another uid to be refused with 409; the answer is <nil>",
		server: func() middle { return changed(http.MethodDelete, "preconditions", nothing) },
	}, {
		name: "an object goes in spite of its finalizers", rule: "R18", run: "^AS-04",
		says:   "object to be there; it is gone",
		server: func() middle { return afterwards(deletes, withoutFinalizers) },
	}, {
		name: "a DELETE without a policy does not look for the default of the kind", rule: "R17", run: "^AS-08",
		says:   `to be left with the finalizer "orphan"`,
		server: func() middle { return changed(http.MethodDelete, "propagationPolicy", byDefault(probe.Background)) },
	}, {
		name: "orphan is taken for background", rule: "R13", run: "^OR-01",
		says: "it was deleted",
		server: func() middle {
			return changed(http.MethodDelete, "propagationPolicy", instead(probe.Orphan, probe.Background))
		},
	}, {
		name: "an owner in foreground deletion goes before its dependents", rule: "R14", run: "^FG-0[35]",
		says: "to be removed before ReplicationController owner",
		server: func() middle {
			return changed(http.MethodDelete, "propagationPolicy", instead(probe.Foreground, probe.Background))
		},
	}, {
		name: "a repeated DELETE postpones the end", rule: "R19", run: "^AS-09",
		says:   "want the end at",
		server: postponed,
	}, {
		name: "a grace period grows", rule: "R17", run: "^AS-09",
		says:   "want a grace period of 600 s for a request of 900 s; it is 900 s",
		server: growing,
	}, {
		name: "a collection is deleted whole, whatever was selected", rule: "R20", run: "^AS-13",
		says:   "want ConfigMap other-0 to be kept; it was deleted",
		server: unselected,
	}, {
		name: "a terminating namespace accepts new objects", rule: "R21", run: "^NS-25 in a terminating namespace",
		says:   "want a creation in a terminating namespace to be refused",
		server: accepting,
	}, {
		name: "a namespace goes before its contents", rule: "S8", run: "^NS-03 NS-15",
		says: "it is still there",
		// Upstream's server only marks a namespace with its first DELETE, even one without spec.finalizers.
		server: func() middle { return around(deletesOfNamespaces, finalized) },
	}, {
		name: "an owner of a kind or version that is not served is taken for absent", rule: "R3", run: "^VN-07",
		says:   "to be kept; it was deleted",
		server: func() middle { return afterwards(createsOfDependents, deletedIfUnserved) },
	}, {
		name: "an object with the name of an owner is taken for the owner", rule: "R1", run: "^BG-02 an owner of the same name",
		says:        "want Secret late to go",
		controllers: func() middle { return keeping(hasNamesake) },
	}, {
		name: "an owner in another namespace is taken for one", rule: "R5", run: "^VN-03",
		says:        "want Secret child to go",
		controllers: func() middle { return keeping(isOwnedElsewhere) },
	}, {
		name: "a dependent is deleted though one of its owners lives", rule: "R9", run: "^(BG-01|FG-06)",
		says:        "two-owners",
		controllers: detachedForGood,
	}, {
		name: "the collector takes foreign finalizers away with its own", rule: "R16", run: "^FG-04",
		says:        "want Pod pod to be there; it is gone",
		controllers: func() middle { return changed(http.MethodPatch, "metadata.finalizers", always(nil)) },
	}, {
		name: "cycles are not cut", rule: "R10", run: "^CY-01",
		says:        "want ConfigMap ring-0 to go",
		controllers: func() middle { return refused(http.MethodPatch, `"blockOwnerDeletion":false`) },
	},
}

// faultPatience is the time that a condition may take on a server with a fault. A condition that a
// fault prevents is never met; any other condition takes less than a second.
const faultPatience = 15 * time.Second

// TestFaultsAreFound plants faults in a server and its controllers, one at a time. The checks that
// pass without a fault fail with it, and the report names the rule that it breaks.
func TestFaultsAreFound(t *testing.T) {
	var all []string
	for _, f := range faults {
		all = append(all, f.run)
	}
	t.Run("none", func(t *testing.T) {
		report := runWith(t, fault{run: strings.Join(all, "|")}, patience)
		if report.Counts[conformance.Pass] != len(report.Checks) || len(report.Checks) < len(faults) {
			text, err := report.Encode("table")
			t.Errorf("without a fault:\n%s%v", text, err)
		}
	})
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			report := runWith(t, f, faultPatience)
			for _, rule := range report.Rules {
				if rule.Code == f.rule && rule.Outcome != conformance.Fail {
					t.Errorf("%s has the outcome %s: %v", rule.Code, rule.Outcome, rule.Checks)
				}
			}
			var said []string
			for _, check := range report.Checks {
				said = append(said, check.Failures...)
			}
			if !regexp.MustCompile(f.says).MatchString(strings.Join(said, "\n")) {
				t.Errorf("no check says %q, but:\n%s", f.says, strings.Join(said, "\n"))
			}
		})
	}
}

// runWith runs the checks of a fault on a server that has it.
func runWith(t *testing.T, f fault, patience time.Duration) conformance.Report {
	t.Helper()
	w := apart(t, unchecked)
	w.collectBehind(f.controllers)
	config := rest.CopyConfig(w.Server.Config)
	if f.server != nil {
		config.Wrap(wrapped(f.server()))
	}
	s, err := probe.NewServer(config)
	if err != nil {
		t.Fatal(err)
	}
	s.Patience, s.Upstream = patience, w.Server.Upstream
	report, err := conformance.Run(t.Context(), s, conformance.Options{
		Selection: conformance.Selection{Run: regexp.MustCompile(f.run)},
		Has:       conformance.Collector | conformance.NamespaceController, Parallel: 16, Now: time.Now,
	})
	if err != nil {
		t.Fatal(fmt.Errorf("run the checks: %w", err))
	}
	return report
}
