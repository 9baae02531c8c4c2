package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/testing/freeport"
)

// The aggregated API server of this test is another control plane with the same authorities, and a
// custom resource as its API.
const (
	treesDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: trees.orchards.example.com}
spec:
  group: orchards.example.com
  scope: Namespaced
  names: {plural: trees, singular: tree, kind: Tree}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, description: What to grow., properties: {height: {type: integer}}}}}}
`
	orchardsAPI = `
apiVersion: v1
kind: Service
metadata: {name: orchards, namespace: default}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.orchards.example.com}
spec:
  group: orchards.example.com
  version: v1
  groupPriorityMinimum: 2000
  versionPriority: 15
  insecureSkipTLSVerify: true
  service: {namespace: default, name: orchards, port: %s}
`
	tree     = "---\napiVersion: orchards.example.com/v1\nkind: Tree\nmetadata: {name: %s}\nspec: {height: 3}\n"
	ownedMap = "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: fruit\n  ownerReferences: [{apiVersion: orchards.example.com/v1, kind: Tree, name: pear, uid: %s}]\n"
)

// TestAggregatedGroup uses the API of another server, which goes down and comes back (NS-06).
func TestAggregatedGroup(t *testing.T) {
	t.Parallel()
	pki, data, port := t.TempDir(), t.TempDir(), freeport.Find(t)
	front := startPlane(t, "--ephemeral", "--secure-port=0", "--pki-dir="+pki, noNodes)
	// Only the controllers of the other one may act there.
	orchards := startPlane(t, "--data-dir="+data, "--secure-port="+port, "--pki-dir="+pki, noNodes, "--controllers=")
	there := kubectls(t, orchards)[0]
	all := kubectls(t, front)
	here := all[len(all)-1] // the machine's own, if there is one
	there.apply(t, "default", treesDefinition)
	here.apply(t, "default", fmt.Sprintf(orchardsAPI, port))
	shows := func(name, service, available string) {
		t.Helper()
		eventually.Agrees(t, func() string {
			line := strings.Fields(here.run(t, "get", "apiservices", name, "--no-headers"))
			if strings.Join(line[1:len(line)-1], " ") == service+" "+available {
				return ""
			}
			return fmt.Sprintf("kubectl get apiservices: %v", line)
		})
	}
	shows("v1.orchards.example.com", "default/orchards", "True")
	shows("v1.apps", "Local", "True")

	for _, k := range []kubectl{there, here} {
		k.run(t, "create", "namespace", "garden")
	}
	here.apply(t, "garden", fmt.Sprintf(tree, "apple")+fmt.Sprintf(tree, "pear"))
	here.eventuallyNames(t, "garden", "trees", "tree.orchards.example.com/apple", "tree.orchards.example.com/pear")
	if text := here.run(t, "explain", "tree.spec"); !strings.Contains(text, "What to grow.") {
		t.Errorf("kubectl explain: %s", text)
	}
	here.apply(t, "garden", fmt.Sprintf(ownedMap, here.get(t, "garden", "tree/pear", "{.metadata.uid}")))

	if err := orchards.Stop(); err != nil {
		t.Fatal(err)
	}
	shows("v1.orchards.example.com", "default/orchards", "False (FailedDiscoveryCheck)")
	if _, errs, err := here.try(t, "", "get", "-n", "garden", "trees"); err == nil || !strings.Contains(errs, "unable to handle the request") {
		t.Errorf("kubectl get of a group that is down: %v %s", err, errs)
	}
	here.run(t, "create", "-n", "garden", "configmap", "free")
	here.run(t, "delete", "namespace", "garden", "--wait=false")
	eventually.Agrees(t, func() string {
		conditions := here.get(t, "default", "namespace/garden", `{range .status.conditions[?(@.status=="True")]}{.type} {.message}{"\n"}{end}`)
		for _, words := range []string{"NamespaceDeletionDiscoveryFailure", "orchards.example.com/v1"} {
			if !strings.Contains(conditions, words) {
				return fmt.Sprintf("the conditions do not say %s: %s", words, conditions)
			}
		}
		return ""
	})
	eventually.Holds(t, "what can be deleted is gone", func() bool { return len(here.names(t, "garden", "configmaps")) == 0 })

	again := startPlane(t, "--data-dir="+data, "--secure-port="+port, "--pki-dir="+pki, noNodes, "--controllers=")
	there = kubectls(t, again)[0]
	// Where the objects are, the namespace controller may empty namespaces that are terminating only.
	there.run(t, "delete", "namespace", "garden", "--wait=false")
	here.run(t, "wait", "--for=delete", "namespace/garden", "--timeout=2m")
	there.eventuallyNames(t, "garden", "trees")
	shows("v1.orchards.example.com", "default/orchards", "True")

	// Owners there are followed again, too.
	here.run(t, "create", "namespace", "meadow")
	there.run(t, "create", "namespace", "meadow")
	here.apply(t, "meadow", fmt.Sprintf(tree, "pear"))
	here.apply(t, "meadow", fmt.Sprintf(ownedMap, here.get(t, "meadow", "tree/pear", "{.metadata.uid}")))
	there.run(t, "delete", "-n", "meadow", "tree", "pear")
	eventually.Agrees(t, func() string {
		if left := own(here.names(t, "meadow", "configmaps")); len(left) > 0 {
			return fmt.Sprintf("the owner is gone, and %v are left", left)
		}
		return ""
	})
	here.run(t, "delete", "apiservice", "v1.orchards.example.com")
	if _, errs, err := here.try(t, "", "get", "-n", "meadow", "trees"); err == nil {
		t.Errorf("kubectl get of a group that is gone: %s", errs)
	}
}

// nowhereAPI registers a group whose service does not exist.
const nowhereAPI = `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.nowhere.example.com}
spec:
  group: nowhere.example.com
  version: v1
  groupPriorityMinimum: 2000
  versionPriority: 15
  insecureSkipTLSVerify: true
  service: {namespace: default, name: nowhere}
`

// A group that was never up holds no foreground deletion. It holds the orphan deletion of an older owner, whose Event
// names the APIService, until that is deleted.
func TestR15_GroupThatWasNeverUp(t *testing.T) {
	t.Parallel()
	plane := startPlane(t, "--ephemeral", "--secure-port=0", noNodes)
	all := kubectls(t, plane)
	here := all[len(all)-1]
	for _, name := range []string{"first", "second"} {
		here.run(t, "create", "configmap", name)
		uid := here.get(t, "default", "configmap/"+name, "{.metadata.uid}")
		here.apply(t, "default", fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata:
  name: %s-dependent
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: %s, uid: %s, blockOwnerDeletion: true}]
`, name, name, uid))
	}
	here.apply(t, "default", nowhereAPI)
	eventually.Agrees(t, func() string {
		if line := here.run(t, "get", "apiservices", "v1.nowhere.example.com", "--no-headers"); !strings.Contains(line, "False") {
			return line
		}
		return ""
	})
	for _, address := range []string{"", "none"} {
		for _, test := range []struct{ name, policy, says string }{
			{"first", "foreground", "Deleted: 2 ConfigMap"},
			{"second", "orphan", "waits for group nowhere.example.com/v1 of the API, which does not answer"},
			{"second", "orphan", "or delete the APIService if nothing needs it"},
		} {
			out, errs, _ := coppice(t, "preview", "delete", "--kubeconfig", plane.kubeconfig, "configmap/"+test.name, "--cascade", test.policy, "--address", address)
			if !strings.Contains(out, test.says) {
				t.Errorf("preview of %s, %s, with --address %q: no %q in\n%s%s", test.name, test.policy, address, test.says, out, errs)
			}
		}
	}
	here.run(t, "delete", "configmap", "first", "--cascade=foreground", "--timeout=2m")
	here.run(t, "delete", "configmap", "second", "--cascade=orphan", "--wait=false")
	eventually.Agrees(t, func() string {
		events := here.run(t, "get", "events", "--field-selector=involvedObject.name=second", "-o", "jsonpath={.items[*].message}")
		for _, words := range []string{"v1.nowhere.example.com", "unavailable since", "delete the APIService"} {
			if !strings.Contains(events, words) {
				return fmt.Sprintf("the Events do not say %q: %s", words, events)
			}
		}
		return ""
	})
	here.eventuallyNames(t, "default", "configmaps", "configmap/kube-root-ca.crt", "configmap/second", "configmap/second-dependent")
	here.run(t, "delete", "apiservice", "v1.nowhere.example.com")
	here.eventuallyNames(t, "default", "configmaps", "configmap/kube-root-ca.crt", "configmap/second-dependent")
}
