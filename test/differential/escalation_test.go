package differential

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// escalationTable has the answers of kube-apiserver to writes of roles and bindings by users who
// may write them, and who may or may not grant what they write. -rewrite records it anew.
const escalationTable = "testdata/escalation.txt"

// TestEscalationIsRefusedAsUpstream compares the answers of our server, and of the kube-apiserver that the environment
// names, with the table.
func TestEscalationIsRefusedAsUpstream(t *testing.T) {
	if path := os.Getenv(kubeconfigVariable); path != "" {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatal(err)
		}
		config.QPS = -1
		theirs := escalationOf(t, "theirs", config)
		if *rewrite {
			if err := os.WriteFile(escalationTable, []byte(strings.Join(theirs, "\n")+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		compareEscalation(t, "kube-apiserver", theirs)
	}
	compareEscalation(t, "our server", escalationOf(t, "ours", startOurs(t)))
}

func compareEscalation(t *testing.T, server string, got []string) {
	t.Helper()
	table, err := os.ReadFile(escalationTable)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(table)), "\n")
	if len(want) < 400 {
		t.Fatalf("the table has %d lines only", len(want))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-table +answers):\n%s", server, diff)
	}
}

const (
	rbacAPI     = "rbac.authorization.k8s.io"
	rbacPath    = "/apis/" + rbacAPI + "/v1/"
	rbacPlace   = "escalation"
	heldRole    = "escalation-held"
	unheldRole  = "escalation-unheld"
	missingRole = "escalation-missing"
)

type fields = map[string]any

func policyRule(group string, verbs []any, resources ...any) fields {
	return fields{"apiGroups": []any{group}, "resources": resources, "verbs": verbs}
}

// held is what all users have, and may grant; not all have unheld.
func held() []any   { return []any{policyRule("", []any{"get"}, "configmaps")} }
func unheld() []any { return []any{policyRule("", []any{"get"}, "secrets")} }

// grantors are the users, with their permissions besides the permission to write roles and
// bindings.
func grantors() map[string][]any {
	return map[string][]any{
		"writer":    nil,
		"holder":    unheld(),
		"escalator": {policyRule(rbacAPI, []any{"escalate"}, "roles", "clusterroles")},
		"binder":    {policyRule(rbacAPI, []any{"bind"}, "roles", "clusterroles")},
		"admin":     {policyRule("*", []any{"*"}, "*"), fields{"nonResourceURLs": []any{"*"}, "verbs": []any{"*"}}},
	}
}

// target is an object that is written.
type target struct {
	name, resource string
	object         fields
	unstorable     bool // validation refuses it
}

func targets() []target {
	role := func(name, resource string, rules []any) target {
		kind := map[string]string{"roles": "Role", "clusterroles": "ClusterRole"}[resource]
		return target{name: name, resource: resource, object: fields{"apiVersion": rbacAPI + "/v1", "kind": kind, "rules": rules}}
	}
	binding := func(name, resource, kind, to string) target {
		own := map[string]string{"rolebindings": "RoleBinding", "clusterrolebindings": "ClusterRoleBinding"}[resource]
		return target{name: name, resource: resource, unstorable: kind == "Widget" || kind == "Role" && own == "ClusterRoleBinding", object: fields{
			"apiVersion": rbacAPI + "/v1", "kind": own, "roleRef": fields{"apiGroup": rbacAPI, "kind": kind, "name": to},
			"subjects": []any{fields{"apiGroup": rbacAPI, "kind": "User", "name": "somebody"}},
		}}
	}
	aggregated := role("aggregated clusterrole", "clusterroles", []any{})
	aggregated.object["aggregationRule"] = fields{"clusterRoleSelectors": []any{fields{"matchLabels": fields{"escalation": "nothing"}}}}
	return []target{
		role("held role", "roles", held()),
		role("unheld role", "roles", unheld()),
		role("held clusterrole", "clusterroles", held()),
		role("unheld clusterrole", "clusterroles", unheld()),
		aggregated,
		binding("binding of a held role", "rolebindings", "Role", heldRole),
		binding("binding of an unheld role", "rolebindings", "Role", unheldRole),
		binding("binding of a held clusterrole", "rolebindings", "ClusterRole", heldRole),
		binding("binding of an unheld clusterrole", "rolebindings", "ClusterRole", unheldRole),
		binding("binding of a missing role", "rolebindings", "Role", missingRole),
		binding("binding of a missing clusterrole", "rolebindings", "ClusterRole", missingRole),
		binding("clusterbinding of a held clusterrole", "clusterrolebindings", "ClusterRole", heldRole),
		binding("clusterbinding of an unheld clusterrole", "clusterrolebindings", "ClusterRole", unheldRole),
		binding("clusterbinding of a missing clusterrole", "clusterrolebindings", "ClusterRole", missingRole),
		binding("clusterbinding of a role", "clusterrolebindings", "Role", heldRole),
		binding("binding of an unknown kind", "rolebindings", "Widget", heldRole),
	}
}

// collectionPath returns the path of a resource.
func collectionPath(resource string) string {
	if resource == "roles" || resource == "rolebindings" {
		return rbacPath + "namespaces/" + rbacPlace + "/" + resource
	}
	return rbacPath + resource
}

// rbacChange is a change of an object, as a merge patch.
type rbacChange struct {
	name  string
	patch fields
}

// changesOf returns the changes of an object. owner is the uid of the namespace kube-system.
func changesOf(o target, owner string) []rbacChange {
	metadata := func(m fields) fields { return fields{"metadata": m} }
	ownerReference := []any{fields{"apiVersion": "v1", "kind": "Namespace", "name": "kube-system", "uid": owner}}
	all := []rbacChange{
		{"nothing", fields{}},
		{"label", metadata(fields{"labels": fields{"a": "b"}})},
		{"owner", metadata(fields{"ownerReferences": ownerReference})},
		{"finalizer", metadata(fields{"finalizers": []any{"escalation.coppice.dev/held"}})},
		{"finalizer and label", metadata(fields{"finalizers": []any{"escalation.coppice.dev/held"}, "labels": fields{"a": "b"}})},
	}
	switch {
	case strings.HasSuffix(o.resource, "bindings"):
		return append(all,
			rbacChange{"subjects", fields{"subjects": []any{fields{"apiGroup": rbacAPI, "kind": "User", "name": "another"}}}},
			rbacChange{"role", fields{"roleRef": fields{"apiGroup": rbacAPI, "kind": "ClusterRole", "name": unheldRole}}})
	case o.resource == "clusterroles":
		selectors := []any{fields{"matchLabels": fields{"escalation": "other"}}}
		all = append(all,
			rbacChange{"label of aggregation", metadata(fields{"labels": fields{rbacAPI + "/aggregate-to-view": "true"}})},
			rbacChange{"aggregation", fields{"aggregationRule": fields{"clusterRoleSelectors": selectors}}})
		if o.object["aggregationRule"] != nil {
			all = append(all, rbacChange{"no aggregation", fields{"aggregationRule": nil}})
		}
	}
	return append(all,
		rbacChange{"held rules", fields{"rules": held()}},
		rbacChange{"unheld rules", fields{"rules": unheld()}})
}

// escalation sends the requests of the table to a server.
type escalation struct {
	admin *apiServer
	users map[string]*apiServer
	owner string
	next  atomic.Int64
}

// escalationOf returns the answers of a server, as lines of the table: one for each object, change
// and form of the request, with the outcome for each user.
func escalationOf(t *testing.T, name string, config *rest.Config) []string {
	t.Helper()
	e := &escalation{admin: newServer(t, name, config), users: map[string]*apiServer{}}
	e.prepare(t, config)
	var rows []escalationRow
	for _, o := range targets() {
		for _, form := range []string{"post", "put", "apply"} {
			rows = append(rows, escalationRow{o, rbacChange{name: "create"}, form})
		}
		if o.unstorable {
			continue
		}
		for _, change := range changesOf(o, e.owner) {
			for _, form := range []string{"merge", "strategic", "json", "apply", "put", "put without metadata"} {
				rows = append(rows, escalationRow{o, change, form})
			}
		}
	}
	lines := make([]string, len(rows))
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(lanes)
	for i, row := range rows {
		group.Go(func() (err error) {
			lines[i], err = e.line(ctx, row)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// escalationRow is a line of the table.
type escalationRow struct {
	object target
	change rbacChange
	form   string
}

// line sends the requests of a row, each about an object of its own.
func (e *escalation) line(ctx context.Context, row escalationRow) (string, error) {
	line := fmt.Sprintf("%s, %s, %s:", row.object.name, row.change.name, row.form)
	for _, user := range slices.Sorted(maps.Keys(e.users)) {
		send := e.change
		if row.change.name == "create" {
			send = e.create
		}
		code, answer, err := send(ctx, e.users[user], row)
		if err != nil {
			return "", err
		}
		line += fmt.Sprintf(" %s %d", user, code)
		if message, _ := answer.Object["message"].(string); code == http.StatusForbidden {
			line += map[bool]string{true: " aggregationRule"}[strings.HasSuffix(message, "must have cluster-admin privileges to use the aggregationRule")]
			line += map[bool]string{true: " not held"}[strings.Contains(message, "is attempting to grant RBAC permissions not currently held:\n{")]
		}
	}
	return line, nil
}

func (e *escalation) prepare(t *testing.T, config *rest.Config) {
	t.Helper()
	mustMake := func(path string, object fields) {
		t.Helper()
		if err := e.make(t.Context(), path, object); err != nil {
			t.Fatal(err)
		}
	}
	mustMake("/api/v1/namespaces", fields{"apiVersion": "v1", "kind": "Namespace", "metadata": fields{"name": rbacPlace}})
	for name, rules := range map[string][]any{heldRole: held(), unheldRole: unheld()} {
		for resource, kind := range map[string]string{"roles": "Role", "clusterroles": "ClusterRole"} {
			mustMake(collectionPath(resource), fields{"apiVersion": rbacAPI + "/v1", "kind": kind, "metadata": fields{"name": name}, "rules": rules})
		}
	}
	system, err := e.admin.get(t.Context(), "/api/v1/namespaces/kube-system")
	if err != nil || system == nil {
		t.Fatalf("%s: the owner: %v %v", e.admin.name, system, err)
	}
	e.owner = string(system.GetUID())
	writes := []any{"get", "create", "update", "patch", "delete"}
	for user, rules := range grantors() {
		rules = append(append(held(), policyRule(rbacAPI, writes, "roles", "clusterroles", "rolebindings", "clusterrolebindings")), rules...)
		name := "escalation-" + user
		mustMake(collectionPath("clusterroles"), fields{"apiVersion": rbacAPI + "/v1", "kind": "ClusterRole", "metadata": fields{"name": name}, "rules": rules})
		mustMake(collectionPath("clusterrolebindings"), fields{
			"apiVersion": rbacAPI + "/v1", "kind": "ClusterRoleBinding", "metadata": fields{"name": name},
			"roleRef":  fields{"apiGroup": rbacAPI, "kind": "ClusterRole", "name": name},
			"subjects": []any{fields{"apiGroup": rbacAPI, "kind": "User", "name": name}},
		})
		as := rest.CopyConfig(config)
		as.Impersonate = rest.ImpersonationConfig{UserName: name}
		e.users[user] = newServer(t, e.admin.name, as)
		eventually.Succeeds(t, func() error { // the server applies the binding
			code, answer, err := e.users[user].send(t.Context(), http.MethodGet, collectionPath("clusterroles")+"/view", "", nil)
			if err == nil && code != http.StatusOK {
				err = fmt.Errorf("%d %v", code, answer)
			}
			return err
		})
	}
	masters := rest.CopyConfig(config)
	masters.Impersonate = rest.ImpersonationConfig{UserName: "escalation-master", Groups: []string{"system:masters"}}
	e.users["master"] = newServer(t, e.admin.name, masters)
}

// make creates an object as the administrator.
func (e *escalation) make(ctx context.Context, path string, object fields) error {
	code, answer, err := e.admin.send(ctx, http.MethodPost, path, "application/json", object)
	if err == nil && code != http.StatusCreated {
		err = fmt.Errorf("%s: create %v: %d %v", e.admin.name, object, code, answer)
	}
	return err
}

// named returns a copy of an object with a name that no other has.
func (e *escalation) named(object fields) (fields, string) {
	object, name := maps.Clone(object), fmt.Sprintf("escalation-%d", e.next.Add(1))
	object["metadata"] = fields{"name": name}
	return object, name
}

func (e *escalation) create(ctx context.Context, s *apiServer, row escalationRow) (int, *unstructured.Unstructured, error) {
	path := collectionPath(row.object.resource)
	object, name := e.named(row.object.object)
	switch row.form {
	case "put":
		return s.send(ctx, http.MethodPut, path+"/"+name, "application/json", object)
	case "apply":
		return s.send(ctx, http.MethodPatch, path+"/"+name+"?fieldManager=x&force=true", "application/apply-patch+yaml", object)
	default:
		return s.send(ctx, http.MethodPost, path, "application/json", object)
	}
}

func (e *escalation) change(ctx context.Context, s *apiServer, row escalationRow) (int, *unstructured.Unstructured, error) {
	path := collectionPath(row.object.resource)
	object, name := e.named(row.object.object)
	if err := e.make(ctx, path, object); err != nil {
		return 0, nil, err
	}
	return e.update(ctx, s, path+"/"+name, row.form, object, row.change.patch)
}

func (e *escalation) update(ctx context.Context, s *apiServer, path, form string, object, patch fields) (int, *unstructured.Unstructured, error) {
	switch form {
	case "merge":
		return s.send(ctx, http.MethodPatch, path, "application/merge-patch+json", patch)
	case "strategic":
		return s.send(ctx, http.MethodPatch, path, "application/strategic-merge-patch+json", patch)
	case "json":
		return s.send(ctx, http.MethodPatch, path, "application/json-patch+json", jsonPatch(patch))
	case "apply":
		applied := fields{"apiVersion": object["apiVersion"], "kind": object["kind"]}
		if object["roleRef"] != nil {
			applied["roleRef"] = object["roleRef"]
		}
		return s.send(ctx, http.MethodPatch, path+"?fieldManager=x&force=true", "application/apply-patch+yaml", merged(merged(applied, patch), fields{"metadata": object["metadata"]}))
	case "put without metadata":
		return s.send(ctx, http.MethodPut, path, "application/json", merged(object, patch))
	}
	stored, err := e.admin.get(ctx, path)
	if err != nil {
		return 0, nil, err
	}
	return s.send(ctx, http.MethodPut, path, "application/json", merged(stored.Object, patch))
}

// jsonPatch returns a merge patch of fields, and of fields of metadata, as a JSON patch.
func jsonPatch(patch fields) []any {
	operations := []any{}
	for name, value := range patch {
		switch inner, isMetadata := value.(fields); {
		case isMetadata && name == "metadata":
			for name, value := range inner {
				operations = append(operations, fields{"op": "add", "path": "/metadata/" + name, "value": value})
			}
		case value == nil:
			operations = append(operations, fields{"op": "remove", "path": "/" + name})
		default:
			operations = append(operations, fields{"op": "add", "path": "/" + name, "value": value})
		}
	}
	return operations
}

// merged returns an object with a merge patch.
func merged(object, patch fields) fields {
	result := maps.Clone(object)
	for name, value := range patch {
		inner, isMap := value.(fields)
		before, wasMap := result[name].(fields)
		switch {
		case value == nil:
			delete(result, name)
		case isMap && wasMap:
			result[name] = merged(before, inner)
		default:
			result[name] = value
		}
	}
	return result
}
