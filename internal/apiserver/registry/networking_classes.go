package registry

import (
	"context"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxControllerName is how long the name of an ingress controller may be.
const maxControllerName = 250

// Where the parameters of an ingress class may be.
const (
	parametersInCluster   = networkingv1.IngressClassParametersReferenceScopeCluster
	parametersInNamespace = networkingv1.IngressClassParametersReferenceScopeNamespace
)

func ingressClasses() Kind {
	return define[networkingv1.IngressClass, networkingv1.IngressClassList](Kind{
		GroupVersion:        networkingv1.SchemeGroupVersion,
		Kind:                "IngressClass",
		Resource:            "ingressclasses",
		Why:                 "Named by Ingresses, and a cluster-scoped object that installers own and delete.",
		Name:                apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, []column{
		text("Controller", "Who serves the class.", func(c *networkingv1.IngressClass) string { return c.Spec.Controller }),
		text("Parameters", "Where that one's settings are.", parametersText),
		ageColumn(),
	}, behaviour[*networkingv1.IngressClass]{
		defaults: func(c *networkingv1.IngressClass) {
			if c.Spec.Parameters != nil {
				setDefaultPtr(&c.Spec.Parameters.Scope, parametersInCluster)
			}
		},
		validate: validateIngressClass,
		validateUpdate: func(c, old *networkingv1.IngressClass) field.ErrorList {
			return immutable(c.Spec.Controller, old.Spec.Controller, field.NewPath("spec", "controller"))
		},
		desired: func(c *networkingv1.IngressClass) any { return c.Spec },
	})
}

func parametersText(c *networkingv1.IngressClass) string {
	p := c.Spec.Parameters
	if p == nil {
		return none
	}
	kind := p.Kind
	if group := deref(p.APIGroup, ""); group != "" {
		kind += "." + group
	}
	return kind + "/" + p.Name
}

func validateIngressClass(c *networkingv1.IngressClass) field.ErrorList {
	spec := field.NewPath("spec")
	at := spec.Child("controller")
	var errs field.ErrorList
	switch controller := c.Spec.Controller; {
	case controller == "":
		errs = append(errs, field.Required(at, ""))
	case len(controller) > maxControllerName:
		errs = append(errs, field.TooLong(at, controller, maxControllerName))
	case !strings.Contains(controller, "/"):
		errs = append(errs, field.Invalid(at, controller, "must be a domain-prefixed path (such as \"acme.io/foo\")"))
	}
	p := c.Spec.Parameters
	if p == nil {
		return errs
	}
	at = spec.Child("parameters")
	errs = append(errs, required(p.Kind, at.Child("kind"))...)
	errs = append(errs, required(p.Name, at.Child("name"))...)
	errs = append(errs, optionalSubdomain(deref(p.APIGroup, ""), at.Child("apiGroup"))...)
	errs = append(errs, oneOfPtr(p.Scope, at.Child("scope"), parametersInCluster, parametersInNamespace)...)
	switch local := deref(p.Scope, "") == parametersInNamespace; {
	case local && deref(p.Namespace, "") == "":
		errs = append(errs, field.Required(at.Child("namespace"), "`parameters.scope` is set to 'Namespace'"))
	case !local && p.Namespace != nil:
		errs = append(errs, field.Forbidden(at.Child("namespace"), "`parameters.scope` is set to 'Cluster'"))
	case local:
		errs = append(errs, wellFormed(*p.Namespace, at.Child("namespace"), validation.IsDNS1123Label(*p.Namespace))...)
	}
	return errs
}

// defaultIngressClass gives an ingress that names no class the one that is marked as default.
func defaultIngressClass(ctx context.Context, d directory, i *networkingv1.Ingress) error {
	if _, named := i.Annotations[legacyClassAnnotation]; named || i.Spec.IngressClassName != nil {
		return nil
	}
	classes, err := listOf[*networkingv1.IngressClass](ctx, d, networkingv1.Resource("ingressclasses"))
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

// legacyClassAnnotation is how a class was named before there was a field.
const legacyClassAnnotation = "kubernetes.io/ingress.class"
