package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// A control plane on which nothing fails logs no warning and no error: not until it is ready, not while its own
// controllers settle, not during small deletions with rounds of discovery, and not while it stops. The second start
// reads what the first one has left.
func TestQuietPlaneLogsNoTrouble(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	for _, name := range []string{"first start", "second start"} {
		t.Run(name, func(t *testing.T) {
			var p *plane
			t.Cleanup(func() { // after the plane has stopped
				if p == nil {
					return
				}
				for line := range strings.Lines(p.Log()) {
					if !strings.Contains(line, " level=INFO ") {
						t.Errorf("a run without trouble logs %s", line)
					}
				}
			})
			p = startPlane(t, "--data-dir", data, "--secure-port=0")
			k := ourKubectl(p)
			k.run(t, "wait", "--for=condition=Available", "apiservices", "--all", "--timeout=2m")
			k.run(t, "wait", "--for=condition=Ready", "nodes", "--all", "--timeout=2m")
			eventually.Agrees(t, func() string {
				accounts := k.run(t, "get", "serviceaccounts", "-A", "--field-selector=metadata.name=default", "-o", "name")
				if have, want := len(strings.Fields(accounts)), len(k.names(t, "default", "namespaces")); have != want {
					return fmt.Sprintf("%d of %d namespaces have a service account", have, want)
				}
				return ""
			})
			for round := range 3 {
				deleteLittle(t, p, k, fmt.Sprintf("quiet-%d.example.com", round))
			}
		})
	}
}

// deleteLittle makes the collector discover a new kind, and delete instances of it, pods and a namespace. It waits until
// the collector has forgotten the kind.
func deleteLittle(t *testing.T, p *plane, k kubectl, group string) {
	t.Helper()
	watched := func() bool {
		code, body := p.curl(t, p.server+"/coppice/v1/status")
		if code != "200" {
			t.Fatalf("%s %s", code, body)
		}
		return strings.Contains(body, `"widgets.`+group+`"`)
	}
	k.apply(t, "default", widgets(group))
	k.run(t, "wait", "--for=condition=Established", "crd/widgets."+group, "--timeout=2m")
	namespace := newNamespace(t, k)
	k.apply(t, namespace, configMap("owner", ""))
	owner := ownerOf("v1", "ConfigMap", "owner", uidOf(t, k, namespace, "configmap/owner"), true)
	k.apply(t, namespace, widget(group, "dependent", owner))
	k.run(t, "create", "-n", namespace, "deployment", "web", "--image=i", "--replicas=2")
	k.run(t, "rollout", "status", "-n", namespace, "deployment/web", "--timeout=2m")
	eventually.Holds(t, "the collector watches widgets", watched)

	k.run(t, "delete", "-n", namespace, "configmap/owner")
	k.eventuallyNames(t, namespace, "widgets."+group)
	k.run(t, "delete", "-n", namespace, "deployment/web", "--cascade=foreground")
	k.apply(t, namespace, widget(group, "content", ""))
	k.run(t, "delete", "namespace", namespace)
	k.run(t, "delete", "crd", "widgets."+group)
	eventually.Holds(t, "the collector does not watch widgets", func() bool { return !watched() })
}
