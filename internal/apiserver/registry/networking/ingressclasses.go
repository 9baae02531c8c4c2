package networking

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// maxControllerName is the maximum length of the name of an ingress controller.
const maxControllerName = 250

// The scopes of an ingress class's parameters.
const (
	parametersInCluster   = networkingv1.IngressClassParametersReferenceScopeCluster
	parametersInNamespace = networkingv1.IngressClassParametersReferenceScopeNamespace
)

func ingressClasses() registry.Resource {
	return registry.Define[networkingv1.IngressClass, networkingv1.IngressClassList](registry.Resource{
		GroupVersion:        networkingv1.SchemeGroupVersion,
		Kind:                "IngressClass",
		Plural:              "ingressclasses",
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, []table.Column{
		table.Text("Controller", "Controller that serves the class.", func(c *networkingv1.IngressClass) string { return c.Spec.Controller }),
		table.Text("Parameters", "Reference to the parameters of the class.", parametersText),
		table.Age(),
	}, registry.Strategy[*networkingv1.IngressClass]{
		Default: func(c *networkingv1.IngressClass) {
			if c.Spec.Parameters != nil {
				registry.SetDefaultPtr(&c.Spec.Parameters.Scope, parametersInCluster)
			}
		},
		Validate: validateIngressClass,
		ValidateUpdate: func(c, old *networkingv1.IngressClass) field.ErrorList {
			return validate.Immutable(c.Spec.Controller, old.Spec.Controller, field.NewPath("spec", "controller"))
		},
		Desired: func(c *networkingv1.IngressClass) any { return c.Spec },
	})
}

func parametersText(c *networkingv1.IngressClass) string {
	p := c.Spec.Parameters
	if p == nil {
		return table.None
	}
	kind := p.Kind
	if group := ptr.Deref(p.APIGroup, ""); group != "" {
		kind += "." + group
	}
	return kind + "/" + p.Name
}

func validateIngressClass(c *networkingv1.IngressClass) field.ErrorList {
	spec := field.NewPath("spec")
	at := spec.Child("controller")
	errs := validation.IsDomainPrefixedPath(at, c.Spec.Controller)
	errs = append(errs, validate.MaxBytes(c.Spec.Controller, at, maxControllerName)...)
	p := c.Spec.Parameters
	if p == nil {
		return errs
	}
	at = spec.Child("parameters")
	errs = append(errs, validateGivenGroup(p.APIGroup, at.Child("apiGroup"))...)
	errs = append(errs, validateSegment(p.Kind, at.Child("kind"))...)
	errs = append(errs, validateSegment(p.Name, at.Child("name"))...)
	errs = append(errs, validate.OneOfPtr(p.Scope, at.Child("scope"), parametersInCluster, parametersInNamespace)...)
	switch scope := ptr.Deref(p.Scope, ""); {
	case scope == parametersInNamespace && p.Namespace == nil:
		errs = append(errs, field.Required(at.Child("namespace"), "`parameters.scope` is set to 'Namespace'"))
	case scope == parametersInNamespace:
		errs = append(errs, validate.FromMessages(*p.Namespace, at.Child("namespace"), validation.IsDNS1123Label(*p.Namespace))...)
	case scope == parametersInCluster && p.Namespace != nil:
		errs = append(errs, field.Forbidden(at.Child("namespace"), "`parameters.scope` is set to 'Cluster'"))
	}
	return errs
}

// defaultIngressClass sets the default class in an Ingress that names none.
func defaultIngressClass(ctx context.Context, d registry.Registries, i *networkingv1.Ingress) error {
	if _, named := i.Annotations[legacyClassAnnotation]; named || i.Spec.IngressClassName != nil {
		return nil
	}
	classes, err := registry.ListFromCache[*networkingv1.IngressClass](ctx, d, networkingv1.Resource("ingressclasses"))
	if err != nil {
		return err
	}
	var chosen *networkingv1.IngressClass
	for _, class := range classes {
		if class.Annotations[networkingv1.AnnotationIsDefaultIngressClass] != "true" {
			continue
		}
		if chosen == nil || chosen.CreationTimestamp.Before(&class.CreationTimestamp) {
			chosen = class
		}
	}
	if chosen != nil {
		i.Spec.IngressClassName = &chosen.Name
	}
	return nil
}

// legacyClassAnnotation named the class before there was a field for it.
const legacyClassAnnotation = "kubernetes.io/ingress.class"
