package system

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// ProtectDefaults parses default modes of protection (R28), each as RESOURCE=MODE. A built-in resource has any of its
// names, "crds" or "deployments.apps"; a custom resource has its plural with its group, "widgets.acme.io". The errors
// are for users.
func ProtectDefaults(values []string) (protection.Defaults, error) {
	defaults := protection.Defaults{}
	for _, value := range values {
		name, mode, isPair := strings.Cut(value, "=")
		if !isPair {
			return nil, fmt.Errorf("%q is not RESOURCE=MODE, such as customresourcedefinitions=unused", value)
		}
		resource, err := resourceNamed(name)
		if err != nil {
			return nil, err
		}
		parsed, err := protection.ParseDefaultMode(mode)
		if err != nil {
			return nil, err
		}
		if before, isThere := defaults[resource]; isThere && before != parsed {
			return nil, fmt.Errorf("%s has two modes, %s and %s: choose one", resource, before, parsed)
		}
		defaults[resource] = parsed
	}
	return defaults, nil
}

// resourceNamed returns the resource that a user names.
func resourceNamed(name string) (schema.GroupResource, error) {
	given := schema.ParseGroupResource(strings.ToLower(name))
	groups := []string{"apiextensions.k8s.io"}
	if (given.Group == "" || given.Group == groups[0]) && slices.Contains([]string{"customresourcedefinitions", "customresourcedefinition", "crds", "crd"}, given.Resource) {
		return schema.GroupResource{Group: groups[0], Resource: "customresourcedefinitions"}, nil
	}
	var found []schema.GroupResource
	resources := builtin.Resources()
	for i := range resources {
		r := &resources[i]
		groups = append(groups, r.GroupVersion.Group)
		if isCalled(r, given) {
			found = append(found, r.GroupResource())
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return given, fmt.Errorf("%q names %s and %s: add the group", name, found[0], found[1])
	case name == "":
		return given, errors.New("a resource is missing before =")
	case given.Group == "":
		return given, fmt.Errorf("no built-in resource is called %q; a custom resource has its plural and its group, such as widgets.acme.io", name)
	case slices.Contains(groups, given.Group):
		return given, fmt.Errorf("group %s has no resource %q", given.Group, given.Resource)
	}
	return given, nil
}

// isCalled reports whether a resource has a name, in one of its groups, or in any if the name has none.
func isCalled(r *registry.Resource, name schema.GroupResource) bool {
	names := append([]string{r.Plural, strings.ToLower(r.Kind)}, r.ShortNames...)
	return slices.Contains(names, name.Resource) && (name.Group == "" ||
		slices.ContainsFunc(r.GroupVersions(), func(v schema.GroupVersion) bool { return v.Group == name.Group }))
}
