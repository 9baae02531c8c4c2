package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// planeWithAudit starts a control plane and returns it with its audit log.
func planeWithAudit(t *testing.T) (p *plane, log string) {
	t.Helper()
	log = filepath.Join(t.TempDir(), "audit.log")
	return startPlane(t, "--ephemeral", "--secure-port=0", "--audit-log-path="+log), log
}

// TestExplainWhatIsGone: the deletion of a removed object is explained back to the first request, from the
// audit log, and without it from the collector's records.
func TestExplainWhatIsGone(t *testing.T) {
	t.Parallel()
	p, log := planeWithAudit(t)
	k := ourKubectl(p)
	k.run(t, "create", "namespace", "shop")
	k.run(t, "create", "-n", "shop", "configmap", "root")
	owned := ownerOf("v1", "ConfigMap", "root", uidOf(t, k, "shop", "configmap/root"), false)
	k.apply(t, "shop", configMap("leaf", owned))
	leaf := uidOf(t, k, "shop", "configmap/leaf")
	k.run(t, "delete", "-n", "shop", "configmap", "root", "--as=ann", "--as-group=system:masters")
	k.run(t, "wait", "--for=delete", "-n", "shop", "configmap/leaf", "--timeout=2m")
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"configmap/leaf"}, []string{"ConfigMap shop/leaf: gone", "deleted by the garbage collector", "policy Background", "ConfigMap root is dangling"}},
		{[]string{"--uid", leaf}, []string{"ConfigMap shop/leaf: gone"}},
		{[]string{"--audit-log", log, "configmap/leaf"}, []string{"deleted by the garbage collector", "    ConfigMap shop/root: gone\n      deleted by ann"}},
		{[]string{"--audit-log", log, "configmap/root"}, []string{"ConfigMap shop/root: gone\n  deleted by ann"}},
	} {
		args := append([]string{"explain", "--kubeconfig", p.kubeconfig, "-n", "shop"}, test.args...)
		eventually.Agrees(t, func() string {
			stdout, stderr, code := coppice(t, args...)
			for _, want := range test.want {
				if code != 0 || !strings.Contains(stdout, want) {
					return strings.Join(args, " ") + " does not say " + want + ": " + stderr + "\n" + stdout
				}
			}
			return ""
		})
	}
	if _, stderr, code := coppice(t, "explain", "--kubeconfig", p.kubeconfig, "-n", "shop", "configmap/never", "--audit-log", log); code == 0 || !strings.Contains(stderr, "configmaps/never does not exist") {
		t.Errorf("what never was: %d %s", code, stderr)
	}
}

// TestToolsOnlyRead: whole commands only send reads, and report the kinds that the user may not list.
func TestToolsOnlyRead(t *testing.T) {
	t.Parallel()
	p, log := planeWithAudit(t)
	k := ourKubectl(p)
	k.run(t, "create", "namespace", "shop")
	hold(t, k, "shop", "held")
	k.run(t, "delete", "-n", "shop", "configmap", "held", "--wait=false")
	k.run(t, "create", "deployment", "-n", "shop", "web", "--image=busybox")
	k.run(t, "create", "role", "-n", "shop", "little", "--verb=get,list", "--resource=configmaps")
	k.run(t, "create", "rolebinding", "-n", "shop", "little", "--role=little", "--user=little")
	commands := map[string][]string{
		"graph":   {"graph", "configmap/held", "--address=none"},
		"preview": {"preview", "delete", "configmap/held", "--address=none"},
		"explain": {"explain", "configmap/held", "--address=none"},
		"audit":   {"audit"},
		// A command that asks the collector reads less.
		"asked-graph":   {"graph", "configmap/held"},
		"asked-preview": {"preview", "delete", "configmap/held"},
		"asked-labels":  {"preview", "delete", "configmap", "-l", "app!=web"},
		"asked-explain": {"explain", "configmap/held"},
	}
	for name, command := range commands {
		user := "tool-" + name
		args := append(slices.Clone(command), "--kubeconfig", p.kubeconfig, "-n", "shop")
		if _, stderr, code := coppice(t, append(args, "--as="+user, "--as-group=system:masters")...); code != 0 && code != 3 || strings.Contains(stderr, "not read") {
			t.Errorf("%s: exit code %d, %s", name, code, stderr)
		}
		var sent map[string]int
		eventually.Agrees(t, func() string {
			if sent = requestsOf(t, log, user); len(sent) == 0 {
				return "nothing of " + user + " is in the audit log"
			}
			return ""
		})
		for verb, n := range sent {
			if !slices.Contains([]string{"get", "list", "watch"}, verb) {
				t.Errorf("%s sent %d requests to %s", name, n, verb)
			}
		}
		if isAsked := strings.HasPrefix(name, "asked-"); isAsked != (sent["list"] < 20) {
			t.Errorf("%s sent %v", name, sent)
		} else if isAsked {
			continue
		}
		if stdout, stderr, code := coppice(t, append(args, "--as=little")...); code != 0 && code != 3 || !strings.Contains(stderr, "not read: ") || !strings.Contains(stderr, "forbidden") {
			t.Errorf("%s, and the user may list little: exit code %d, stderr %s\n%s", name, code, stderr, stdout)
		}
	}
}

// TestDocumentedRoleIsEnough: with the role of docs/tools.md, the commands read everything that they need.
func TestDocumentedRoleIsEnough(t *testing.T) {
	t.Parallel()
	p, _ := planeWithAudit(t)
	k := ourKubectl(p)
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "tools.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, role, _ := strings.Cut(string(text), "```yaml\napiVersion: rbac.authorization.k8s.io/v1\n")
	role, _, _ = strings.Cut(role, "```")
	k.apply(t, "default", "apiVersion: rbac.authorization.k8s.io/v1\n"+role)
	k.run(t, "create", "clusterrolebinding", "reader", "--clusterrole=coppice-reader", "--user=reader")
	k.run(t, "create", "namespace", "shop")
	hold(t, k, "shop", "held")
	k.run(t, "delete", "-n", "shop", "configmap", "held", "--wait=false")
	k.run(t, "create", "deployment", "-n", "shop", "web", "--image=busybox", "--replicas=0")
	k.run(t, "create", "service", "clusterip", "-n", "shop", "web", "--tcp=80")
	for name, command := range map[string][]string{
		"graph":             {"graph", "configmap/held", "--address=none"},
		"preview":           {"preview", "delete", "deployment/web", "--address=none"},
		"preview service":   {"preview", "delete", "service/web", "--address=none"},
		"preview namespace": {"preview", "delete", "namespace/shop", "--address=none"},
		"explain":           {"explain", "configmap/held", "--address=none"},
		"audit":             {"audit"},
		"wait":              {"wait", "configmap/held", "--address=none", "--timeout=5s"},
		"asked preview":     {"preview", "delete", "deployment/web"},
	} {
		args := append(slices.Clone(command), "--kubeconfig", p.kubeconfig, "-n", "shop", "--as=reader")
		isPreview := strings.Contains(name, "preview")
		eventually.Agrees(t, func() string {
			stdout, stderr, code := coppice(t, args...)
			isDone := code == 0 || code == 3 || name == "wait" && code > 5
			for _, lacks := range []string{"not read", "not be read", "orbidden", "you may not"} {
				isDone = isDone && !strings.Contains(stdout+stderr, lacks)
			}
			if all, _, _ := coppice(t, args[:len(args)-1]...); isPreview && all != stdout {
				return fmt.Sprintf("%s: the administrator gets\n%sand the reader\n%s", name, all, stdout)
			}
			if isDone {
				return ""
			}
			return fmt.Sprintf("%s: exit code %d, %s\n%s", name, code, stderr, stdout)
		})
	}
}

// requestsOf counts the requests of an impersonated user by their verb.
func requestsOf(t *testing.T, log, user string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	sent := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var e auditv1.Event
		if !strings.HasSuffix(line, "\n") {
			break // still being written
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.ImpersonatedUser != nil && e.ImpersonatedUser.Username == user && e.Stage != auditv1.StageRequestReceived {
			sent[e.Verb]++
		}
	}
	return sent
}
