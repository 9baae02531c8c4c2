// Package admissionregistration is the API group admissionregistration.k8s.io: webhook
// configurations, and validating and mutating admission policies.
package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// Group returns the API group admissionregistration.k8s.io/v1.
func Group() registry.Group {
	return registry.Group{
		GroupVersion: admissionregistrationv1.SchemeGroupVersion,
		AddToScheme:  admissionregistrationv1.AddToScheme,
		Resources: []registry.Resource{
			validatingWebhookConfigurations(),
			mutatingWebhookConfigurations(),
			validatingAdmissionPolicies(),
			validatingAdmissionPolicyBindings(),
			mutatingAdmissionPolicies(),
			mutatingAdmissionPolicyBindings(),
		},
	}
}

// admissionRow returns the common part of this group's rows.
func admissionRow(kind, plural string) registry.Resource {
	return registry.Resource{
		GroupVersion: admissionregistrationv1.SchemeGroupVersion,
		Kind:         kind,
		Plural:       plural,
		Categories:   []string{"api-extensions"},
		ValidateName: apivalidation.NameIsDNSSubdomain,
		AnyFinalizer: true,
	}
}

func validatingWebhookConfigurations() registry.Resource {
	row := admissionRow("ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
	row.ExactGeneration = true
	return registry.Define[admissionregistrationv1.ValidatingWebhookConfiguration, admissionregistrationv1.ValidatingWebhookConfigurationList](row, []table.Column{
		table.Number("Webhooks", "Webhooks that are called.", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) int { return len(c.Webhooks) }),
		table.Age(),
	}, registry.Strategy[*admissionregistrationv1.ValidatingWebhookConfiguration]{
		Warn:           warnOfName[*admissionregistrationv1.ValidatingWebhookConfiguration],
		ValidateCreate: refuseName[*admissionregistrationv1.ValidatingWebhookConfiguration],
		Default: func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			for i := range c.Webhooks {
				defaultWebhook(&c.Webhooks[i])
			}
		},
		Validate: func(c *admissionregistrationv1.ValidatingWebhookConfiguration) field.ErrorList {
			return validateWebhooks(c.Webhooks)
		},
		Desired: func(c *admissionregistrationv1.ValidatingWebhookConfiguration) any { return c.Webhooks },
	})
}

func mutatingWebhookConfigurations() registry.Resource {
	row := admissionRow("MutatingWebhookConfiguration", "mutatingwebhookconfigurations")
	row.ExactGeneration = true
	return registry.Define[admissionregistrationv1.MutatingWebhookConfiguration, admissionregistrationv1.MutatingWebhookConfigurationList](row, []table.Column{
		table.Number("Webhooks", "Webhooks that are called.", func(c *admissionregistrationv1.MutatingWebhookConfiguration) int { return len(c.Webhooks) }),
		table.Age(),
	}, registry.Strategy[*admissionregistrationv1.MutatingWebhookConfiguration]{
		Warn:           warnOfName[*admissionregistrationv1.MutatingWebhookConfiguration],
		ValidateCreate: refuseName[*admissionregistrationv1.MutatingWebhookConfiguration],
		Default: func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			for i := range c.Webhooks {
				common := commonOf(&c.Webhooks[i])
				defaultWebhook(&common)
				setCommon(&c.Webhooks[i], common)
				registry.SetDefaultPtr(&c.Webhooks[i].ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
			}
		},
		Validate: func(c *admissionregistrationv1.MutatingWebhookConfiguration) field.ErrorList {
			var all []admissionregistrationv1.ValidatingWebhook
			var errs field.ErrorList
			for i := range c.Webhooks {
				all = append(all, commonOf(&c.Webhooks[i]))
				errs = append(errs, validate.OneOfPtr(c.Webhooks[i].ReinvocationPolicy, field.NewPath("webhooks").Index(i).Child("reinvocationPolicy"),
					admissionregistrationv1.NeverReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy)...)
			}
			return append(errs, validateWebhooks(all)...)
		},
		Desired: func(c *admissionregistrationv1.MutatingWebhookConfiguration) any { return c.Webhooks },
	})
}

// commonOf returns a mutating webhook without the fields that only mutating ones have.
func commonOf(w *admissionregistrationv1.MutatingWebhook) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
		NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
		TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
	}
}

func setCommon(w *admissionregistrationv1.MutatingWebhook, c admissionregistrationv1.ValidatingWebhook) {
	reinvocation := w.ReinvocationPolicy
	*w = admissionregistrationv1.MutatingWebhook{
		Name: c.Name, ClientConfig: c.ClientConfig, Rules: c.Rules, FailurePolicy: c.FailurePolicy, MatchPolicy: c.MatchPolicy,
		NamespaceSelector: c.NamespaceSelector, ObjectSelector: c.ObjectSelector, SideEffects: c.SideEffects,
		TimeoutSeconds: c.TimeoutSeconds, AdmissionReviewVersions: c.AdmissionReviewVersions, MatchConditions: c.MatchConditions,
		ReinvocationPolicy: reinvocation,
	}
}

func defaultWebhook(w *admissionregistrationv1.ValidatingWebhook) {
	registry.SetDefaultPtr(&w.FailurePolicy, admissionregistrationv1.Fail)
	registry.SetDefaultPtr(&w.MatchPolicy, admissionregistrationv1.Equivalent)
	registry.SetDefaultPtr(&w.NamespaceSelector, metav1.LabelSelector{})
	registry.SetDefaultPtr(&w.ObjectSelector, metav1.LabelSelector{})
	registry.SetDefaultPtr(&w.TimeoutSeconds, 10)
	if w.ClientConfig.Service != nil {
		registry.SetDefaultPtr(&w.ClientConfig.Service.Port, 443)
	}
	for i := range w.Rules {
		registry.SetDefaultPtr(&w.Rules[i].Scope, admissionregistrationv1.AllScopes)
	}
}

func validateWebhooks(webhooks []admissionregistrationv1.ValidatingWebhook) field.ErrorList {
	path := field.NewPath("webhooks")
	return append(
		validate.NoDuplicates(webhooks, path, func(w admissionregistrationv1.ValidatingWebhook) string { return w.Name }, "name"),
		validate.Each(webhooks, path, validateWebhook)...)
}

func validateWebhook(w *admissionregistrationv1.ValidatingWebhook, at *field.Path) field.ErrorList {
	errs := slices.Concat(
		validation.IsFullyQualifiedName(at.Child("name"), w.Name),
		validateClientConfig(&w.ClientConfig, at.Child("clientConfig")),
		validate.Each(w.Rules, at.Child("rules"), validateRuleWithOperations),
		validate.OneOfPtr(w.FailurePolicy, at.Child("failurePolicy"), admissionregistrationv1.Fail, admissionregistrationv1.Ignore),
		validate.OneOfPtr(w.MatchPolicy, at.Child("matchPolicy"), admissionregistrationv1.Equivalent, admissionregistrationv1.Exact),
		validateReviewVersions(w.AdmissionReviewVersions, at.Child("admissionReviewVersions")),
		validateMatchConditions(w.MatchConditions, false, at.Child("matchConditions")),
	)
	if w.SideEffects == nil {
		errs = append(errs, field.Required(at.Child("sideEffects"), "must specify one of None, NoneOnDryRun"))
	}
	errs = append(errs, validate.OneOfPtr(w.SideEffects, at.Child("sideEffects"),
		admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun)...)
	if seconds := w.TimeoutSeconds; seconds != nil && (*seconds < 1 || *seconds > 30) {
		errs = append(errs, field.Invalid(at.Child("timeoutSeconds"), *seconds, "the timeout value must be between 1 and 30 seconds"))
	}
	return append(errs, validateSelectors(w.NamespaceSelector, w.ObjectSelector, at)...)
}

func validateSelectors(namespaces, objects *metav1.LabelSelector, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if namespaces != nil {
		errs = validate.LabelSelector(namespaces, at.Child("namespaceSelector"))
	}
	if objects != nil {
		errs = append(errs, validate.LabelSelector(objects, at.Child("objectSelector"))...)
	}
	return errs
}

func validateClientConfig(c *admissionregistrationv1.WebhookClientConfig, at *field.Path) field.ErrorList {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		return field.ErrorList{field.Required(at, "exactly one of url or service is required")}
	case c.URL != nil:
		return webhook.ValidateWebhookURL(at.Child("url"), *c.URL, true)
	default:
		s := c.Service
		return webhook.ValidateWebhookService(at.Child("service"), s.Name, s.Namespace, s.Path, ptr.Deref(s.Port, 443))
	}
}

func validateReviewVersions(versions []string, at *field.Path) field.ErrorList {
	if len(versions) == 0 {
		return field.ErrorList{field.Required(at, "must specify one of v1, v1beta1")}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, version := range versions {
		if seen[version] {
			errs = append(errs, field.Invalid(at.Index(i), version, "duplicate version"))
			continue
		}
		seen[version] = true
		errs = append(errs, validate.FromMessages(version, at.Index(i), validation.IsDNS1035Label(version))...)
	}
	if !slices.Contains(versions, "v1") && !slices.Contains(versions, "v1beta1") {
		errs = append(errs, field.Invalid(at, versions, "must include at least one of v1, v1beta1"))
	}
	return errs
}

func validateRuleWithOperations(r *admissionregistrationv1.RuleWithOperations, at *field.Path) field.ErrorList {
	errs := slices.Concat(
		validateWildcards(r.APIGroups, at.Child("apiGroups"), "API groups"),
		validateWildcards(r.APIVersions, at.Child("apiVersions"), "API versions"),
		validate.Each(r.APIVersions, at.Child("apiVersions"), func(version *string, at *field.Path) field.ErrorList { return validate.Required(*version, at) }),
		validate.OneOfPtr(r.Scope, at.Child("scope"), admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope, admissionregistrationv1.AllScopes),
	)
	if len(r.Operations) == 0 {
		errs = append(errs, field.Required(at.Child("operations"), ""))
	}
	if len(r.Operations) > 1 && slices.Contains(r.Operations, admissionregistrationv1.OperationAll) {
		errs = append(errs, field.Invalid(at.Child("operations"), r.Operations, "if '*' is present, must not specify other operations"))
	}
	errs = append(errs, validate.Each(r.Operations, at.Child("operations"), func(o *admissionregistrationv1.OperationType, at *field.Path) field.ErrorList {
		return validate.OneOfPtr(o, at, admissionregistrationv1.OperationAll, admissionregistrationv1.Connect,
			admissionregistrationv1.Create, admissionregistrationv1.Delete, admissionregistrationv1.Update)
	})...)
	return append(errs, validateResources(r.Resources, at.Child("resources"))...)
}

// validateResources checks resources and subresources. '*' matches all. An entry that another one already matches is an
// error.
func validateResources(resources []string, at *field.Path) field.ErrorList {
	if len(resources) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	covered := func(i int, by string) {
		errs = append(errs, field.Invalid(at.Index(i), resources[i], fmt.Sprintf("if '%s' is present, must not specify %s", by, resources[i])))
	}
	earlier := map[string]bool{}
	plain := false // whether the last one without a subresource is a single resource
	for i, name := range resources {
		resource, subresource, nested := strings.Cut(name, "/")
		switch {
		case name == "":
			errs = append(errs, field.Required(at.Index(i), ""))
		case !nested:
			plain = name != "*"
		default:
			for _, all := range []string{resource + "/*", "*/" + subresource} {
				if earlier[all] {
					covered(i, all)
				}
			}
		}
		earlier[name] = true
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		errs = append(errs, field.Invalid(at, resources, "if '*/*' is present, must not specify other resources"))
	}
	if plain && slices.Contains(resources, "*") {
		errs = append(errs, field.Invalid(at, resources, "if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}

// validateWildcards checks that a list with '*' has no other element. things names its elements in errors.
func validateWildcards(values []string, at *field.Path, things string) field.ErrorList {
	if len(values) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	if len(values) > 1 && slices.Contains(values, "*") {
		return field.ErrorList{field.Invalid(at, values, "if '*' is present, must not specify other "+things)}
	}
	return nil
}

// validateMatchConditions checks and compiles conditions. params says whether they may use
// parameters.
func validateMatchConditions(conditions []admissionregistrationv1.MatchCondition, params bool, at *field.Path) field.ErrorList {
	const most = 64
	var errs field.ErrorList
	errs = append(errs, validate.MaxItems(conditions, at, most)...)
	return slices.Concat(errs,
		validate.NoDuplicates(conditions, at, func(c admissionregistrationv1.MatchCondition) string { return c.Name }, "name"),
		validate.Each(conditions, at, func(c *admissionregistrationv1.MatchCondition, at *field.Path) field.ErrorList {
			errs := validate.Required(strings.TrimSpace(c.Expression), at.Child("expression"))
			if len(errs) == 0 {
				errs = checkCondition(c.Expression, params, at.Child("expression"))
			}
			if c.Name == "" {
				return append(errs, field.Required(at.Child("name"), ""))
			}
			return append(errs, validate.FromMessages(c.Name, at.Child("name"), validation.IsQualifiedName(c.Name))...)
		}))
}

// reservedName returns the complaint about a name that is reserved for objects in a server's static files.
func reservedName(name string) string {
	const reserved = ".static.k8s.io"
	if !strings.HasSuffix(name, reserved) {
		return ""
	}
	return fmt.Sprintf("names ending with %q are reserved for static manifest-based configurations and cannot be managed via the API", reserved)
}

// refuseName refuses a reserved name to a new object.
func refuseName[P metav1.Object](obj P) field.ErrorList {
	if complaint := reservedName(obj.GetName()); complaint != "" {
		return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), obj.GetName(), complaint)}
	}
	return nil
}

// warnOfName warns about a reserved name.
func warnOfName[P metav1.Object](obj, _ P) []string {
	if complaint := reservedName(obj.GetName()); complaint != "" {
		return []string{"metadata.name: " + complaint}
	}
	return nil
}
