package networking

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// ipAddresses record the owners of addresses. The name of an IPAddress is the address.
func ipAddresses() registry.Resource {
	return registry.Define[networkingv1.IPAddress, networkingv1.IPAddressList](registry.Resource{
		GroupVersion:        networkingv1.SchemeGroupVersion,
		Kind:                "IPAddress",
		Plural:              "ipaddresses",
		ShortNames:          []string{"ip"},
		NameGenerator:       exactly{},
		ValidateName:        validateAddressName,
		UnconditionalUpdate: true,
	}, []table.Column{
		table.Text("ParentRef", "Object that has the address.", parentText),
		table.Age(),
	}, registry.Strategy[*networkingv1.IPAddress]{
		Validate: func(a *networkingv1.IPAddress) field.ErrorList {
			return validateParent(a.Spec.ParentRef, field.NewPath("spec", "parentRef"))
		},
		ValidateUpdate: func(a, old *networkingv1.IPAddress) field.ErrorList {
			return validate.ImmutableUnnamed(a.Spec.ParentRef, old.Spec.ParentRef, field.NewPath("spec", "parentRef"))
		},
	})
}

// exactly generates no suffix: with other characters at its end, an address would be another one, or invalid.
type exactly struct{}

// GenerateName implements names.NameGenerator.
func (exactly) GenerateName(prefix string) string { return prefix }

func validateAddressName(name string, _ bool) []string {
	var complaints []string
	for _, err := range validation.IsValidIP(nil, name) {
		complaints = append(complaints, err.Detail)
	}
	return complaints
}

func parentText(a *networkingv1.IPAddress) string {
	p := a.Spec.ParentRef
	if p == nil {
		return table.None
	}
	words := []string{strings.ToLower(schema.GroupResource{Group: p.Group, Resource: p.Resource}.String())}
	if p.Namespace != "" {
		words = append(words, p.Namespace)
	}
	return strings.Join(append(words, p.Name), "/")
}

// validateParent checks a reference to any object; the core group has no name.
func validateParent(p *networkingv1.ParentReference, at *field.Path) field.ErrorList {
	if p == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := validate.OptionalSubdomain(p.Group, at.Child("group"))
	segment := func(value, name string) {
		errs = append(errs, validate.FromMessages(value, at.Child(name), content.IsPathSegmentName(value))...)
	}
	if p.Resource == "" {
		errs = append(errs, field.Required(at.Child("resource"), ""))
	} else {
		segment(p.Resource, "resource")
	}
	if p.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	} else {
		segment(p.Name, "name")
	}
	if p.Namespace != "" {
		segment(p.Namespace, "namespace")
	}
	return errs
}
