package differential

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/coppice-dev/coppice/internal/testing/difference"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// freshNamespaces are the namespaces of an unused server.
var freshNamespaces = []string{"default", "kube-node-lease", "kube-public", "kube-system"}

// eventResources are Events in both of their groups.
var eventResources = []string{"events", "events.events.k8s.io"}

// declaration permits differences. The pattern is about the whole line of a difference: what
// each side does is part of it.
type declaration struct {
	pattern *regexp.Regexp
	reason  string
}

func permit(reason, pattern string) declaration {
	return declaration{regexp.MustCompile("^(?:" + pattern + ")$"), reason}
}

// freshDeclarations are the intended differences of the initial objects.
var freshDeclarations = []declaration{
	permit("old versions of apps and extensions are served (R17)", `only ours: apiservices\.apiregistration\.k8s\.io/v1beta\d\.(apps|extensions)`),
	permit("the group of APIServices has one itself", `only ours: apiservices\.apiregistration\.k8s\.io/v1\.apiregistration\.k8s\.io`),
	permit("components are listed where they run", `only theirs: componentstatuses/(controller-manager|scheduler)`),
	permit("our own controllers have a priority level", `only ours: flowschemas\.flowcontrol\.apiserver\.k8s\.io/coppice-[a-z-]+`),
	permit("each server has an authority of its own", `(?s)configmaps/kube-system/extension-apiserver-authentication: data\.client-ca-file: .*`),
	permit("front proxies are those of the own authority, whatever the flags say",
		`(?s)configmaps/kube-system/extension-apiserver-authentication: only ours has data\.requestheader-.*`),
	permit("each server has a port of its own", `\S+/default/kubernetes: (subsets\[0\]\.|spec\.)?ports\[0\]\.(port|targetPort): ours \d+, theirs \d+`),
	permit("no server here passes requests on to others of its kind",
		`leases\.coordination\.k8s\.io/kube-system/\S+: only theirs has metadata\.annotations = map\[kubernetes\.io/peer-advertise-address:\S+\]`),
	permit("our own components have roles, and edit and the group system:monitoring further rules",
		`only ours: clusterrole(binding)?s\.rbac\.authorization\.k8s\.io/system:coppice:[a-z-]+`),
	permit("the rights of nodes are a role, and less than a kubelet's", `clusterroles\.rbac\.authorization\.k8s\.io/system:node: only (ours|theirs) has rules\..+`),
	permit("the rights of nodes are a role", `clusterrolebindings\.rbac\.authorization\.k8s\.io/system:node: only ours has subjects = \[map\[[^\]]* name:system:nodes\]\]`),
	permit("the server aggregates roles itself, and no kube-controller-manager runs here",
		`clusterroles\.rbac\.authorization\.k8s\.io/(admin|edit|view): rules: ours map\[.+\], theirs <nil>`),
}

// TestFreshServers compares all objects of two servers that have just started: suites may count on any of them.
// Events are left out: a kube-apiserver whose own first requests come too early on a slow machine records one. It
// needs an unused kube-apiserver.
func TestFreshServers(t *testing.T) {
	pair := servers(t)
	theirs := pair[1]
	if got, err := theirs.namespaces(t.Context()); err != nil || !slices.Equal(got, freshNamespaces) {
		t.Skipf("the kube-apiserver has the namespaces %v, %v: it has been used", got, err)
	}
	eventually.Succeeds(t, func() error {
		var found [2]map[string]any
		var served [2]map[string]string
		for i, s := range pair {
			var err error
			if served[i], err = s.listable(t.Context()); err != nil {
				return err
			}
		}
		for i, s := range pair {
			found[i] = map[string]any{}
			for resource, path := range served[i] {
				if served[1-i][resource] == "" || slices.Contains(eventResources, resource) {
					continue
				}
				if err := s.listInto(t.Context(), resource, path, found[i]); err != nil {
					return err
				}
			}
		}
		if lines := freshDifferences(found[0], found[1]); len(lines) > 0 {
			return fmt.Errorf("%d differences:\n%s", len(lines), strings.Join(lines, "\n"))
		}
		return nil
	})
}

// freshDifferences lists how the objects differ, but for the declared differences.
func freshDifferences(ours, theirs map[string]any) []string {
	keys := maps.Clone(ours)
	maps.Copy(keys, theirs)
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		switch {
		case ours[key] == nil:
			lines = append(lines, "only theirs: "+key)
		case theirs[key] == nil:
			lines = append(lines, "only ours: "+key)
		default:
			for _, line := range difference.Fields("", ours[key], theirs[key]) {
				lines = append(lines, key+": "+line)
			}
		}
	}
	return slices.DeleteFunc(lines, func(line string) bool {
		return slices.ContainsFunc(freshDeclarations, func(d declaration) bool { return d.pattern.MatchString(line) })
	})
}

func (s *apiServer) namespaces(ctx context.Context) ([]string, error) {
	found := map[string]any{}
	if err := s.listInto(ctx, "namespaces", "/api/v1/namespaces", found); err != nil {
		return nil, err
	}
	var names []string
	for key := range found {
		_, name, _ := strings.Cut(key, "/")
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// listable returns the path of each resource that can be listed, in its preferred version.
func (s *apiServer) listable(ctx context.Context) (map[string]string, error) {
	paths := map[string]string{}
	add := func(group, root string) error {
		code, list, err := s.send(ctx, http.MethodGet, root, "", nil)
		if err != nil || code != http.StatusOK {
			return fmt.Errorf("%s: discover %s: %d %w", s.name, root, code, err)
		}
		for _, r := range asList(list.Object["resources"]) {
			r := r.(map[string]any)
			if name := fmt.Sprint(r["name"]); slices.Contains(asList(r["verbs"]), any("list")) && paths[strings.TrimSuffix(name+"."+group, ".")] == "" {
				paths[strings.TrimSuffix(name+"."+group, ".")] = root + "/" + name
			}
		}
		return nil
	}
	if err := add("", "/api/v1"); err != nil {
		return nil, err
	}
	code, groups, err := s.send(ctx, http.MethodGet, "/apis", "", nil)
	if err != nil || code != http.StatusOK {
		return nil, fmt.Errorf("%s: discover the groups: %d %w", s.name, code, err)
	}
	for _, g := range asList(groups.Object["groups"]) {
		g := g.(map[string]any)
		for _, v := range asList(g["versions"]) {
			if err := add(fmt.Sprint(g["name"]), "/apis/"+fmt.Sprint(v.(map[string]any)["groupVersion"])); err != nil {
				return nil, err
			}
		}
	}
	return paths, nil
}

// listInto adds all objects of a resource, without what differs between any two servers.
func (s *apiServer) listInto(ctx context.Context, resource, path string, into map[string]any) error {
	code, answer, err := s.send(ctx, http.MethodGet, path, "", nil)
	if err != nil || code != http.StatusOK {
		return fmt.Errorf("%s: list %s: %d %w", s.name, resource, code, err)
	}
	for _, item := range asList(answer.Object["items"]) {
		o := &unstructured.Unstructured{Object: item.(map[string]any)}
		key := resource + "/" + strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
		o.SetManagedFields(nil)
		content := difference.Normalised(o)
		if rules, ok := content["rules"].([]any); ok && strings.HasSuffix(resource, "."+rbacv1.GroupName) {
			content["rules"] = byContent(rules)
		}
		into[key] = content
	}
	return nil
}

// byContent returns the rules of a role, each under a name that says all of it: their order means nothing.
func byContent(rules []any) map[string]any {
	named := map[string]any{}
	for _, rule := range rules {
		r := rule.(map[string]any)
		var parts []string
		for _, field := range slices.Sorted(maps.Keys(r)) {
			parts = append(parts, fmt.Sprintf("%s=%q", field, r[field]))
		}
		named[strings.Join(parts, " ")] = true
	}
	return named
}
