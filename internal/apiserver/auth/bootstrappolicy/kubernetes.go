package bootstrappolicy

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:embed kubernetes.txt
var kubernetesPolicy string

// kubernetesRoles returns the roles of Kubernetes and their bindings.
func kubernetesRoles() Objects {
	objects, err := parsePolicy(kubernetesPolicy)
	if err != nil {
		panic("kubernetes.txt: " + err.Error()) // TestKubernetesRoles parses it
	}
	return objects
}

// parsePolicy parses roles in the format that kubernetes.txt describes.
func parsePolicy(text string) (Objects, error) {
	var objects Objects
	var current *parsedRole
	for i, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
			continue
		case !strings.HasPrefix(line, " "):
			current.addTo(&objects)
			current = newParsedRole(words)
		case current != nil:
			current.parse(words)
		}
		if current == nil || current.err != nil {
			return Objects{}, fmt.Errorf("line %d is neither a role nor a line of one: %q", i+1, line)
		}
	}
	current.addTo(&objects)
	return objects, nil
}

// parsedRole is a role and its binding while their lines are parsed. A Role is stored as a ClusterRole with a
// namespace.
type parsedRole struct {
	role     *rbacv1.ClusterRole
	binding  string // its name
	subjects []rbacv1.Subject
	err      error
}

func newParsedRole(words []string) *parsedRole {
	if len(words) != 2 {
		return nil
	}
	namespace, name, namespaced := strings.Cut(words[1], "/")
	if !namespaced {
		namespace, name = "", words[1]
	}
	if kind := words[0]; kind == "ClusterRole" && namespaced || kind == "Role" && !namespaced || kind != "ClusterRole" && kind != "Role" {
		return nil
	}
	p := &parsedRole{role: role(name), binding: name}
	p.role.Namespace = namespace
	return p
}

// parse reads a line of the role.
func (p *parsedRole) parse(words []string) {
	switch n := len(words); {
	case n == 3 && words[0] == "aggregated" && words[1] == "to":
		p.role.Labels[aggregateLabel+words[2]] = "true"
	case n == 2 && words[0] == "aggregates":
		p.role.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{
			{MatchLabels: map[string]string{aggregateLabel + words[1]: "true"}},
		}}
	case n == 6 && words[0] == "bound" && words[1] == "by" && words[3] == "to":
		p.binding = words[2]
		p.bind(words[4], words[5])
	case n == 4 && words[0] == "bound" && words[1] == "to":
		p.bind(words[2], words[3])
	case n == 3 && words[1] == "paths":
		p.role.Rules = append(p.role.Rules, rbacv1.PolicyRule{Verbs: list(words[0]), NonResourceURLs: list(words[2])})
	case n == 3:
		p.role.Rules = append(p.role.Rules, rbacv1.PolicyRule{Verbs: list(words[0]), APIGroups: groups(words[1]), Resources: list(words[2])})
	case n == 4:
		p.role.Rules = append(p.role.Rules, rbacv1.PolicyRule{Verbs: list(words[0]), APIGroups: groups(words[1]), Resources: list(words[2]), ResourceNames: list(words[3])})
	default:
		p.err = fmt.Errorf("%d words", n)
	}
}

func (p *parsedRole) bind(kind, name string) {
	subject := rbacv1.Subject{Kind: kind, APIGroup: rbacv1.GroupName, Name: name}
	switch kind {
	case rbacv1.UserKind, rbacv1.GroupKind:
	case rbacv1.ServiceAccountKind:
		subject.APIGroup = ""
		subject.Namespace, subject.Name, _ = strings.Cut(name, "/")
	default:
		p.err = fmt.Errorf("%s is no subject", kind)
	}
	p.subjects = append(p.subjects, subject)
}

// addTo adds the role and its binding, if it has subjects, to the objects.
func (p *parsedRole) addTo(objects *Objects) {
	if p == nil {
		return
	}
	meta := bootstrapMeta(p.binding)
	meta.Namespace = p.role.Namespace
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: p.role.Name}
	if meta.Namespace != "" {
		objects.Roles = append(objects.Roles, &rbacv1.Role{ObjectMeta: p.role.ObjectMeta, Rules: p.role.Rules})
		objects.RoleBindings = append(objects.RoleBindings, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: p.subjects})
		return
	}
	objects.ClusterRoles = append(objects.ClusterRoles, p.role)
	if ref.Kind = "ClusterRole"; len(p.subjects) > 0 {
		objects.ClusterRoleBindings = append(objects.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: p.subjects})
	}
}

func list(words string) []string { return strings.Split(words, ",") }

func groups(words string) []string {
	names := list(words)
	if i := slices.Index(names, "core"); i >= 0 {
		names[i] = ""
	}
	return names
}
