package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: "nginx:1.25"}
      - {name: side, image: "busybox:1"}
`

// TestApplyOnTheClientAndOnTheServer applies on the client and on the server, and sees conflicts.
func TestApplyOnTheClientAndOnTheServer(t *testing.T) {
	eachKubectl(t, func(t *testing.T, k kubectl, namespace string) {
		k.apply(t, namespace, deployment)
		k.apply(t, namespace, strings.Replace(deployment, "nginx:1.25", "nginx:1.26", 1))
		if got := k.get(t, namespace, "deployment/web", "{.spec.template.spec.containers[*].image}"); got != "nginx:1.26 busybox:1" {
			t.Errorf("images after apply: %s", got)
		}
		if got := k.get(t, namespace, "deployment/web", "{.metadata.generation}"); got != "2" {
			t.Errorf("generation after a change of the spec: %s", got)
		}
		k.run(t, "label", "-n", namespace, "deployment/web", "tier=front")
		if got := k.get(t, namespace, "deployment/web", "{.metadata.generation}"); got != "2" {
			t.Errorf("generation after a change of a label: %s", got)
		}

		onServer := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {key: %s}\n"
		server := func(value, manager string, more ...string) (string, error) {
			args := append([]string{"apply", "--server-side", "--field-manager=" + manager, "-n", namespace, "-f", "-"}, more...)
			_, errs, err := k.try(t, fmt.Sprintf(onServer, value), args...)
			return errs, err
		}
		if errs, err := server("one", "first"); err != nil {
			t.Fatal(errs)
		}
		if errs, err := server("two", "second"); err == nil || !strings.Contains(errs, "conflict") {
			t.Errorf("a second manager took over a field without a conflict: %s", errs)
		}
		if errs, err := server("two", "second", "--force-conflicts"); err != nil {
			t.Error(errs)
		}
		if got := k.get(t, namespace, "configmap/shared", "{.data.key}"); got != "two" {
			t.Errorf("after a forced apply: %s", got)
		}
	})
}

// TestEachPatchTypeOfKubectl patches with each of kubectl's patch types.
func TestEachPatchTypeOfKubectl(t *testing.T) {
	eachKubectl(t, func(t *testing.T, k kubectl, namespace string) {
		k.apply(t, namespace, deployment)
		k.run(t, "patch", "-n", namespace, "deployment", "web", "-p", `{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"busybox:2"}]}}}}`)
		k.run(t, "patch", "-n", namespace, "deployment", "web", "--type=json", "-p", `[{"op":"replace","path":"/spec/replicas","value":5}]`)
		k.run(t, "patch", "-n", namespace, "deployment", "web", "--type=merge", "-p", `{"metadata":{"annotations":{"a":"b"}}}`)
		k.run(t, "set", "image", "-n", namespace, "deployment/web", "web=nginx:9")
		if got := k.get(t, namespace, "deployment/web", "{.spec.replicas} {.spec.template.spec.containers[*].image} {.metadata.annotations.a}"); got != "5 nginx:9 busybox:2 b" {
			t.Errorf("after the patches: %s", got)
		}
		k.run(t, "patch", "-n", namespace, "deployment", "web", "--subresource=status", "--type=merge", "-p", `{"status":{"replicas":3},"spec":{"replicas":1}}`)
		if got := k.get(t, namespace, "deployment/web", "{.spec.replicas} {.status.replicas}"); got != "5 3" {
			t.Errorf("spec and status after a patch of the status: %s", got)
		}
		k.run(t, "patch", "-n", namespace, "deployment", "web", "--type=merge", "-p", `{"status":{"replicas":7},"spec":{"replicas":1}}`)
		if got := k.get(t, namespace, "deployment/web", "{.spec.replicas} {.status.replicas}"); got != "1 3" {
			t.Errorf("spec and status after a patch of the spec: %s", got)
		}
	})
}

// TestListsBySelectors lists by label and by field, and gets an error for a field that does not exist.
func TestListsBySelectors(t *testing.T) {
	eachKubectl(t, func(t *testing.T, k kubectl, namespace string) {
		k.apply(t, namespace, pod("one", "")+pod("two", ""))
		k.run(t, "label", "-n", namespace, "pod/one", "color=red")
		if got := strings.Join(k.names(t, namespace, "pods", "-l", "color=red"), " "); got != "pod/one" {
			t.Errorf("by label: %s", got)
		}
		if got := strings.Join(k.names(t, namespace, "pods", "--field-selector=metadata.name=two"), " "); got != "pod/two" {
			t.Errorf("by name: %s", got)
		}
		if got := k.names(t, namespace, "po", "--field-selector=status.phase=Pending,spec.nodeName="); len(got) != 2 {
			t.Errorf("by phase: %v", got)
		}
		if _, errs, err := k.try(t, "", "get", "-n", namespace, "pods", "--field-selector=spec.color=red"); err == nil || !strings.Contains(errs, "field label not supported") {
			t.Errorf("by a field that is none: %v %s", err, errs)
		}
	})
}

// TestPrintedColumns checks the printed columns.
func TestPrintedColumns(t *testing.T) {
	eachKubectl(t, func(t *testing.T, k kubectl, namespace string) {
		k.apply(t, namespace, deployment+pod("one", ""))
		for resources, want := range map[string]string{
			"deploy":     `^NAME +READY +UP-TO-DATE +AVAILABLE +AGE\nweb +0/2 +0 +0 +\S+$`,
			"pods":       `^NAME +READY +STATUS +RESTARTS +AGE\none +0/1 +Pending +0 +\S+$`,
			"po -o wide": `^NAME +READY +STATUS +RESTARTS +AGE +IP +NODE`,
			"ns default": `^NAME +STATUS +AGE\ndefault +Active +\S+$`,
			"all":        `(?s)pod/one.*deployment.apps/web`,
		} {
			if got := k.run(t, append([]string{"get", "-n", namespace}, strings.Fields(resources)...)...); !regexp.MustCompile(want).MatchString(got) {
				t.Errorf("get %s does not match %s:\n%s", resources, want, got)
			}
		}
	})
}

// TestExplainDiffDryRun asks for documentation, differences, and what would happen.
func TestExplainDiffDryRun(t *testing.T) {
	eachKubectl(t, func(t *testing.T, k kubectl, namespace string) {
		if got := k.run(t, "explain", "deployment.spec.replicas"); !strings.Contains(got, "Number of desired pods") {
			t.Errorf("explain: %s", got)
		}
		if got := k.run(t, "explain", "pod.metadata.ownerReferences.blockOwnerDeletion"); !strings.Contains(got, "foregroundDeletion") {
			t.Errorf("explain: %s", got)
		}
		group := groupFor(k, "explained")
		defineWidgets(t, k, group)
		eventually.Agrees(t, func() string {
			if got, errs, _ := k.try(t, "", "explain", "widgets.spec.size", "--api-version="+group+"/v1"); !strings.Contains(got, "How big the widget is.") {
				return got + errs
			}
			return ""
		})

		k.apply(t, namespace, deployment)
		changed := filepath.Join(t.TempDir(), "changed.yaml")
		if err := os.WriteFile(changed, []byte(strings.Replace(deployment, "replicas: 2", "replicas: 4", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := exec.LookPath("diff"); err != nil {
			missing(t, "diff")
		}
		got, _, err := k.try(t, "", "diff", "-n", namespace, "-f", changed)
		if err == nil || !strings.Contains(got, "-  replicas: 2") || !strings.Contains(got, "+  replicas: 4") {
			t.Errorf("diff: %v\n%s", err, got)
		}
		k.run(t, "apply", "-n", namespace, "-f", changed, "--dry-run=server")
		if got := k.get(t, namespace, "deployment/web", "{.spec.replicas}"); got != "2" {
			t.Errorf("a dry run changed the replicas to %s", got)
		}
		k.run(t, "delete", "-n", namespace, "deployment", "web", "--dry-run=server")
		k.run(t, "delete", "-n", namespace, "deployment", "web", "--dry-run=server", "--cascade=foreground")
		if got := k.get(t, namespace, "deployment/web", "{.metadata.name}{.metadata.deletionTimestamp}{.metadata.finalizers}"); got != "web" {
			t.Errorf("a dry run of a deletion left %s", got)
		}
	})
}

// TestInvalidObjectsAreRefused checks that invalid objects are refused with Kubernetes' messages.
func TestInvalidObjectsAreRefused(t *testing.T) {
	withKubectl(t, func(t *testing.T, k kubectl, namespace string) {
		for name, c := range map[string]struct{ manifest, want string }{
			"name":       {configMap("Not_A_Name", ""), "a lowercase RFC 1123 subdomain"},
			"owner":      {configMap("a", ownerOf("v1", "ConfigMap", `""`, "u-1", false)), "metadata.ownerReferences[0].name: Required value"},
			"selector":   {strings.Replace(deployment, "matchLabels: {app: web}", "matchLabels: {app: other}", 1), "`selector` does not match template `labels`"},
			"containers": {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n", "spec.containers: Required value"},
			"field":      {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndatum: {}\n", "unknown field \"datum\""},
		} {
			// A kubectl older than 1.25 checks fields itself, and words errors about required
			// ones differently; a newer one has the server check them.
			args := []string{"create", "-n", namespace, "--validate=false", "-f", "-"}
			if name == "field" {
				args[3] = "--validate=true"
			}
			if _, errs, err := k.try(t, c.manifest, args...); err == nil || !strings.Contains(errs, c.want) {
				t.Errorf("%s: %v, want %q in: %s", name, err, c.want, errs)
			}
		}
	})
}

// TestGracefulDeletion deletes a pod that is bound: it stays until a kubelet confirms that it has
// stopped, or it is deleted by force.
func TestGracefulDeletion(t *testing.T) {
	withKubectl(t, func(t *testing.T, k kubectl, namespace string) {
		k.apply(t, namespace, pod("bound", "")+pod("unbound", ""))
		code, body := k.plane.curl(t, "-X", "POST", "-H", "Content-Type: application/json", k.plane.server+"/api/v1/namespaces/"+namespace+"/pods/bound/binding",
			"-d", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"bound"},"target":{"kind":"Node","name":"n1"}}`)
		if code != "201" {
			t.Fatalf("binding answered %s: %s", code, body)
		}
		k.run(t, "delete", "-n", namespace, "pods", "bound", "unbound", "--wait=false")
		k.eventuallyNames(t, namespace, "pods", "pod/bound")
		if got := k.get(t, namespace, "pod/bound", "{.metadata.deletionGracePeriodSeconds}"); got != "30" {
			t.Errorf("grace period: %s", got)
		}
		if got := k.run(t, "get", "-n", namespace, "pods"); !strings.Contains(got, "Terminating") {
			t.Errorf("status:\n%s", got)
		}
		k.run(t, "delete", "-n", namespace, "pod", "bound", "--grace-period=0", "--force")
		k.eventuallyNames(t, namespace, "pods")
	})
}

// TestPreconditionsOfADelete deletes only the object with the given preconditions.
func TestPreconditionsOfADelete(t *testing.T) {
	p := sharedPlane(t)
	k := kubectls(t, p)[0]
	namespace := newNamespace(t, k)
	k.apply(t, namespace, configMap("a", ""))
	url := p.server + "/api/v1/namespaces/" + namespace + "/configmaps/a"
	for _, wrong := range []string{`{"uid":"11111111-2222-3333-4444-555555555555"}`, `{"resourceVersion":"1"}`} {
		if code, body := p.curl(t, "-X", "DELETE", url, "-H", "Content-Type: application/json", "-d", `{"preconditions":`+wrong+`}`); code != "409" {
			t.Errorf("precondition %s answered %s: %s", wrong, code, body)
		}
	}
	right := fmt.Sprintf(`{"preconditions":{"uid":%q,"resourceVersion":%q}}`, uidOf(t, k, namespace, "configmap/a"), k.get(t, namespace, "configmap/a", "{.metadata.resourceVersion}"))
	if code, body := p.curl(t, "-X", "DELETE", url, "-H", "Content-Type: application/json", "-d", right); code != "200" {
		t.Errorf("DELETE answered %s: %s", code, body)
	}
}

// TestDeleteCollection deletes the objects of a selector.
func TestDeleteCollection(t *testing.T) {
	withKubectl(t, func(t *testing.T, k kubectl, namespace string) {
		k.apply(t, namespace, configMap("a", "")+configMap("b", "")+configMap("c", ""))
		k.run(t, "label", "-n", namespace, "configmap", "a", "b", "color=red")
		code, body := k.plane.curl(t, "-X", "DELETE", k.plane.server+"/api/v1/namespaces/"+namespace+"/configmaps?labelSelector=color%3Dred")
		if code != "200" {
			t.Fatalf("DELETE answered %s: %s", code, body)
		}
		k.eventuallyNames(t, namespace, "configmaps", "configmap/c")
		k.run(t, "delete", "-n", namespace, "configmaps", "--all")
		k.eventuallyNames(t, namespace, "configmaps")
	})
}

// TestWatchAndWait sees a change by a watch, and waits for a deletion.
func TestWatchAndWait(t *testing.T) {
	eachKubectl(t, func(t *testing.T, k kubectl, namespace string) {
		k.apply(t, namespace, configMap("a", ""))
		watch := k.begin(t, "get", "-n", namespace, "configmaps", "--watch", "-o", "name")
		k.apply(t, namespace, configMap("b", ""))
		readUntil(t, watch, "configmap/b")
		k.run(t, "delete", "-n", namespace, "configmap", "b", "--wait=false")
		k.run(t, "wait", "-n", namespace, "--for=delete", "configmap/b", "--timeout=2m")
	})
}

// TestDescribeWithoutComplaint describes an object without complaint.
func TestDescribeWithoutComplaint(t *testing.T) {
	eachKubectl(t, func(t *testing.T, k kubectl, namespace string) {
		k.apply(t, namespace, deployment)
		if got := k.run(t, "describe", "-n", namespace, "deployment", "web"); !strings.Contains(got, "Replicas:") {
			t.Errorf("describe:\n%s", got)
		}
	})
}
