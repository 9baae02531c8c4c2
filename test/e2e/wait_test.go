package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
	progress "github.com/coppice-dev/coppice/internal/tools/cascade"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// waitHold is a finalizer without a controller, which no other test sets.
const waitHold = "wait-e2e.example.com/hold"

// The exit codes of coppice wait.
const (
	waitGone     = 0
	waitFailed   = 1
	waitStuck    = 6
	waitTimedOut = 7
)

// waitCase is a namespace in which a test deletes objects, on our server or on another one (previewServer).
type waitCase struct {
	*previewCluster
	madeCase

	kubeconfig string
}

// waitCases numbers the namespaces.
var waitCases atomic.Int64

func newWaitCase(t *testing.T) *waitCase {
	t.Helper()
	name := fmt.Sprintf("wait-%d", waitCases.Add(1))
	c := &waitCase{previewCluster: newPreviewCluster(t, name), kubeconfig: os.Getenv(previewServer)}
	if !c.foreign {
		c.kubeconfig = sharedPlane(t).kubeconfig
	}
	c.madeCase = madeCase{namespace: name, resources: resourcesOf(name + ".example.com")}
	c.create(t, c.resource("Namespace"), map[string]any{"name": name}, nil)
	return c
}

// object makes an object; a manifest's manager is kubectl. It returns the reference of an owner that the object blocks.
func (c *waitCase) object(t *testing.T, kind, name string, finalizers []any, owners ...any) map[string]any {
	t.Helper()
	r := c.resource(kind)
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": r.GroupVersion().String(), "kind": r.Kind,
		"metadata": map[string]any{"name": name, "namespace": c.namespace, "finalizers": finalizers, "ownerReferences": owners},
	}}
	var made *unstructured.Unstructured
	eventually.Succeeds(t, func() (err error) { // a new kind is served a moment later
		made, err = c.in(r, c.namespace).Create(t.Context(), o, metav1.CreateOptions{FieldManager: "kubectl-create"})
		return err
	})
	return map[string]any{
		"apiVersion": made.GetAPIVersion(), "kind": kind, "name": name, "uid": string(made.GetUID()), "blockOwnerDeletion": true,
	}
}

// remove sends the DELETE of an object.
func (c *waitCase) remove(t *testing.T, kind, name string, policy metav1.DeletionPropagation) {
	t.Helper()
	if err := c.in(c.resource(kind), c.namespace).Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		t.Fatal(err)
	}
}

// free removes the finalizers of an object.
func (c *waitCase) free(t *testing.T, kind, name string) {
	t.Helper()
	if _, err := c.in(c.resource(kind), c.namespace).Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// expect fails the test unless the named ConfigMaps are all that there are.
func (c *waitCase) expect(t *testing.T, names ...string) {
	t.Helper()
	list, err := c.in(c.resource("ConfigMap"), c.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for n := range list.Items {
		if name := list.Items[n].GetName(); name != "kube-root-ca.crt" {
			found = append(found, name)
		}
	}
	if !slices.Equal(found, names) {
		t.Errorf("after the wait, the ConfigMaps are %q, want %q", found, names)
	}
}

// args are the arguments of coppice wait.
func (c *waitCase) args(args ...string) []string {
	return append([]string{"wait", "--kubeconfig", c.kubeconfig, "-n", c.namespace}, args...)
}

// wait runs coppice wait, and checks its exit code and the words of its result.
func (c *waitCase) wait(t *testing.T, code int, words []string, args ...string) {
	t.Helper()
	out, errs, got := coppice(t, c.args(args...)...)
	if got != code || slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(out+errs, w) }) {
		t.Errorf("coppice wait %q ends with %d, want %d and the words %q\n%s\n%s", args, got, code, words, out, errs)
	}
}

// waitProcess is a running coppice wait -o json.
type waitProcess struct {
	command *exec.Cmd
	lines   *bufio.Scanner
	errs    *strings.Builder
}

func (c *waitCase) start(t *testing.T, args ...string) *waitProcess {
	t.Helper()
	p := &waitProcess{command: exec.CommandContext(t.Context(), binary, c.args(append(args, "-o", "json", "--timeout", "3m")...)...), errs: &strings.Builder{}}
	p.command.Stderr = p.errs
	out, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// next returns the next report.
func (p *waitProcess) next(t *testing.T) (r progress.Report) {
	t.Helper()
	if !p.lines.Scan() {
		t.Fatalf("no further line: %v, %s", p.lines.Err(), p.errs)
	}
	if err := json.Unmarshal(p.lines.Bytes(), &r); err != nil {
		t.Fatalf("%s: %v", p.lines.Bytes(), err)
	}
	return r
}

// end returns the last report and the exit code.
func (p *waitProcess) end(t *testing.T) (r progress.Report, code int) {
	t.Helper()
	for p.lines.Scan() {
		r = progress.Report{}
		if err := json.Unmarshal(p.lines.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v", p.lines.Bytes(), err)
		}
	}
	_ = p.command.Wait()
	return r, p.command.ProcessState.ExitCode()
}

// A wait ends when the dependents of the dependents are gone, whatever the policy. Objects that stay are named.
func TestWaitEndsWithTheCascade(t *testing.T) {
	t.Parallel()
	c := newWaitCase(t)
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationBackground} {
		other := c.object(t, "ConfigMap", "other", nil)
		root := c.object(t, "ConfigMap", "root", nil)
		child := c.object(t, "ConfigMap", "child", []any{waitHold}, root)
		c.object(t, "ConfigMap", "grandchild", []any{waitHold}, child)
		c.object(t, "ConfigMap", "shared", nil, root, other)
		c.remove(t, "ConfigMap", "root", policy)
		p := c.start(t, "configmap/root")
		if r := p.next(t); r.State != progress.Waiting || r.Left == 0 || len(r.Roots) != 1 {
			t.Errorf("%s: the first report is %+v", policy, r)
		}
		c.free(t, "ConfigMap", "grandchild")
		c.free(t, "ConfigMap", "child")
		r, code := p.end(t)
		if code != waitGone || r.State != progress.Gone || r.Gone != 3 {
			t.Errorf("%s: the end is %+v with exit code %d\n%s", policy, r, code, p.errs)
		}
		c.expect(t, "other", "shared")
		c.wait(t, waitGone, []string{"does not exist"}, "configmap/none", "--timeout", "3m")
		c.remove(t, "ConfigMap", "shared", policy)
		c.remove(t, "ConfigMap", "other", policy)
		c.wait(t, waitGone, nil, "configmap/shared", "configmap/other", "--timeout", "3m")
		c.expect(t)
	}
}

// coppice delete --wait ends with the cascade, too, and names the dependents that were orphaned.
func TestDeleteWaits(t *testing.T) {
	t.Parallel()
	c := newWaitCase(t)
	for _, cascading := range []string{"foreground", "background", "orphan"} {
		root := c.object(t, "ConfigMap", "root", nil)
		c.object(t, "ConfigMap", "child", nil, root)
		args := []string{"--kubeconfig", c.kubeconfig, "-n", c.namespace, "configmap/root", "--cascade", cascading}
		out, errs, code := coppice(t, append([]string{"preview", "delete", "--address", "none", "-o", "json"}, args...)...)
		var report preview.Report
		if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 {
			t.Fatalf("preview: %v, exit code %d, %s", err, code, errs)
		}
		out, errs, code = coppice(t, append([]string{"delete", "--wait", "--timeout", "3m", "--confirm", report.Digest}, args...)...)
		if code != waitGone || !strings.Contains(out, "configmaps/root deleted") || !strings.Contains(out, "ConfigMap "+c.namespace+"/root: gone") {
			t.Errorf("%s: exit code %d\n%s%s", cascading, code, out, errs)
		}
		if cascading != "orphan" {
			c.expect(t)
			continue
		}
		if !strings.Contains(out, "stays: ConfigMap "+c.namespace+"/child, orphaned") {
			t.Errorf("the orphan is not named:\n%s", out)
		}
		c.expect(t, "child")
	}
}

// The contents of a namespace and the instances of a definition are waited for, and what holds them is named.
func TestWaitForNamespaceAndDefinition(t *testing.T) {
	t.Parallel()
	c := newWaitCase(t)
	c.define(t, c.madeCase)
	c.object(t, "Widget", "w", []any{waitHold})
	c.object(t, "ConfigMap", "free", nil)
	definition := "widgets." + c.resource("Widget").Group
	for _, one := range []struct{ kind, name, args string }{
		{"CustomResourceDefinition", definition, "crd/" + definition},
		{"Namespace", c.namespace, "namespace/" + c.namespace},
	} {
		if one.kind == "Namespace" {
			c.object(t, "ConfigMap", "held", []any{waitHold})
		}
		c.remove(t, one.kind, one.name, metav1.DeletePropagationBackground)
		p := c.start(t, one.args)
		var r progress.Report
		isNamed := func() bool {
			return slices.ContainsFunc(r.Causes, func(g explain.Group) bool { return strings.Contains(g.Leaf.Says, waitHold) })
		}
		for r = p.next(t); !isNamed() && !r.IsFinal(); {
			r = p.next(t)
		}
		if !isNamed() {
			t.Errorf("%s: the finalizer is not named: %+v", one.args, r)
		}
		if one.kind == "Namespace" {
			c.free(t, "ConfigMap", "held")
		} else {
			c.free(t, "Widget", "w")
		}
		if r, code := p.end(t); code != waitGone || r.State != progress.Gone || r.Gone < 2 {
			t.Errorf("%s: the end is %+v with exit code %d\n%s", one.args, r, code, p.errs)
		}
		if _, err := c.client.Resource(c.resource(one.kind).GroupVersionResource).Get(t.Context(), one.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("after the wait, %s exists: %v", one.args, err)
		}
	}
}

// A wait that cannot end says so: a finalizer without a controller, and a policy that keeps a dependent, are stuck. One
// that may end is over at its timeout.
func TestWaitEndsWithoutTheCascade(t *testing.T) {
	t.Parallel()
	c := newWaitCase(t)
	c.object(t, "ConfigMap", "alive", nil)
	c.wait(t, waitFailed, []string{"ConfigMap " + c.namespace + "/alive is not being deleted", "delete it first"}, "configmap/alive")
	c.object(t, "ConfigMap", "held", []any{waitHold})
	c.remove(t, "ConfigMap", "held", metav1.DeletePropagationBackground)
	c.wait(t, waitTimedOut, []string{"timed out", "objects left: 1"}, "configmap/held", "--timeout", "4s") // in 5 s it is stuck
	c.wait(t, waitStuck, []string{"ConfigMap " + c.namespace + "/held: stuck", "finalizer " + waitHold + ": nobody serves it", "next: "}, "configmap/held", "--timeout", "3m")

	root := c.object(t, "ConfigMap", "root", nil)
	c.object(t, "ConfigMap", "kept", nil, root)
	c.keep(t)
	c.remove(t, "ConfigMap", "root", metav1.DeletePropagationBackground)
	c.wait(t, waitStuck, []string{"ConfigMap " + c.namespace + "/root: stuck", "refuse", c.namespace + ".example.com", "it is kept"}, "configmap/root", "--timeout", "3m")

	p := c.start(t, "configmap/held")
	p.next(t)
	if err := p.command.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if _, code := p.end(t); code != waitFailed || !strings.Contains(p.errs.String(), "interrupted, objects left: 1") {
		t.Errorf("Ctrl-C: exit code %d, %s", code, p.errs)
	}
	c.free(t, "ConfigMap", "held")
}

// keep makes a policy that denies the deletion of the ConfigMap kept, and waits until it is in effect.
func (c *waitCase) keep(t *testing.T) {
	t.Helper()
	name := c.namespace + ".example.com"
	k := kubectl{"coppice kubectl", []string{binary, "kubectl", "--kubeconfig", c.kubeconfig}, &plane{kubeconfig: c.kubeconfig}}
	k.apply(t, c.namespace, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: `+name+`}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: `+c.namespace+`}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [configmaps]}]
  validations: [{expression: 'oldObject.metadata.name != "kept"', message: it is kept}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: `+name+`}
spec: {policyName: `+name+`, validationActions: [Deny]}
`)
	t.Cleanup(func() {
		k.run(t, "delete", "validatingadmissionpolicybinding", name)
		k.run(t, "delete", "validatingadmissionpolicy", name)
	})
	eventually.Agrees(t, func() string {
		if err := c.in(c.resource("ConfigMap"), c.namespace).Delete(t.Context(), "kept", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
			return "the policy is not in effect"
		}
		return ""
	})
}

// An object that is created under the same name does not count, neither before the wait nor meanwhile.
func TestWaitIsForTheUID(t *testing.T) {
	t.Parallel()
	c := newWaitCase(t)
	root := c.object(t, "ConfigMap", "root", []any{waitHold})
	child := c.object(t, "ConfigMap", "child", []any{waitHold}, root)
	c.object(t, "ConfigMap", "grandchild", []any{waitHold}, child)
	c.remove(t, "ConfigMap", "root", metav1.DeletePropagationBackground)
	p := c.start(t, "configmap/root")
	p.next(t)
	c.free(t, "ConfigMap", "root")
	next := c.object(t, "ConfigMap", "root", nil)
	c.object(t, "ConfigMap", "of-next", nil, next)
	late := c.start(t, "configmap/root")
	late.next(t)
	c.free(t, "ConfigMap", "child")
	c.free(t, "ConfigMap", "grandchild")
	for name, p := range map[string]*waitProcess{"before": p, "afterwards": late} {
		if r, code := p.end(t); code != waitGone || r.State != progress.Gone {
			t.Errorf("the wait that began %s ends with %+v, exit code %d\n%s", name, r, code, p.errs)
		}
	}
	c.expect(t, "of-next", "root")
}

// The ID of a recorded deletion stands for all of its objects, while it lasts and afterwards.
func TestWaitForStory(t *testing.T) {
	t.Parallel()
	c := newWaitCase(t)
	root := c.object(t, "ConfigMap", "root", nil)
	child := c.object(t, "ConfigMap", "child", nil, root)
	c.object(t, "ConfigMap", "grandchild", []any{waitHold}, child)
	c.remove(t, "ConfigMap", "root", metav1.DeletePropagationBackground)
	id := root["uid"].(string)
	if c.foreign {
		c.wait(t, waitFailed, []string{"no collector records deletions here"}, id)
		c.free(t, "ConfigMap", "grandchild")
		return
	}
	eventually.Agrees(t, func() string { // the last object of the story has come
		out, errs, _ := coppice(t, "stories", "--kubeconfig", c.kubeconfig, id)
		if !strings.Contains(out, "2 gone, 1 waiting") {
			return out + errs
		}
		return ""
	})
	p := c.start(t, id)
	if r := p.next(t); r.Left != 1 || r.Gone != 2 || len(r.Roots) != 1 || string(r.Roots[0].UID) != id {
		t.Errorf("the first report is %+v", r)
	}
	late := c.start(t, "configmap/root") // whose dependents are gone, too
	late.next(t)
	c.free(t, "ConfigMap", "grandchild")
	for _, p := range []*waitProcess{p, late} {
		if r, code := p.end(t); code != waitGone || r.State != progress.Gone || r.Gone != 3 {
			t.Errorf("the end is %+v with exit code %d\n%s", r, code, p.errs)
		}
	}
	c.wait(t, waitGone, []string{"gone, objects in all: 3"}, id, "--timeout", "3m")
	c.wait(t, waitFailed, []string{"no record"}, "3f9a1c52-6d0e-4a57-9a37-0f5b6f1f4c11")
}
