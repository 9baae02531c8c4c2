package builtin

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// Bounds of priorities.
const (
	maxGroupPriority   = 20000
	maxVersionPriority = 1000
)

// apiServicePort is the default port of an API server's Service.
const apiServicePort = 443

// apiregistrationGroup returns the API group apiregistration.k8s.io/v1: APIServices. Each assigns a group version to
// this server or to the server behind a Service. builtin reports whether this server serves a group version itself,
// whatever APIServices say. No other server may then serve it.
func apiregistrationGroup(builtin func(schema.GroupVersion) bool) registry.Group {
	return registry.Group{
		GroupVersion: apiregistrationv1.SchemeGroupVersion,
		AddToScheme:  apiregistrationv1.AddToScheme,
		Resources:    []registry.Resource{apiServices(builtin)},
	}
}

func apiServices(builtin func(schema.GroupVersion) bool) registry.Resource {
	return registry.Define[apiregistrationv1.APIService, apiregistrationv1.APIServiceList](registry.Resource{
		GroupVersion: apiregistrationv1.SchemeGroupVersion,
		Kind:         "APIService",
		Plural:       "apiservices",
		Categories:   []string{"api-extensions"},
		ValidateName: path.ValidatePathSegmentName,
		AnyFinalizer: true,
	}, []table.Column{
		table.Text("Service", "The Service of the server that serves the group version.", apiServiceText),
		table.Text("Available", "Whether that server can be reached.", apiServiceAvailability),
		table.Age(),
	}, registry.Strategy[*apiregistrationv1.APIService]{
		Default: func(s *apiregistrationv1.APIService) {
			if s.Spec.Service != nil {
				registry.SetDefaultPtr(&s.Spec.Service.Port, apiServicePort)
			}
		},
		PrepareForCreate: func(s *apiregistrationv1.APIService) {
			if s.Spec.Service == nil {
				helper.SetAPIServiceCondition(s, helper.NewLocalAvailableAPIServiceCondition())
			}
		},
		Validate:             func(s *apiregistrationv1.APIService) field.ErrorList { return validateAPIService(s, builtin) },
		ValidateStatusUpdate: func(s, _ *apiregistrationv1.APIService) field.ErrorList { return validateAPIServiceConditions(s) },
		CopyStatus: registry.CopyField(func(s *apiregistrationv1.APIService) *apiregistrationv1.APIServiceStatus {
			return &s.Status
		}),
	})
}

func apiServiceText(s *apiregistrationv1.APIService) string {
	if s.Spec.Service == nil {
		return "Local"
	}
	return s.Spec.Service.Namespace + "/" + s.Spec.Service.Name
}

func apiServiceAvailability(s *apiregistrationv1.APIService) string {
	available := helper.GetAPIServiceConditionByType(s, apiregistrationv1.Available)
	switch {
	case available == nil:
		return string(apiregistrationv1.ConditionUnknown)
	case available.Status != apiregistrationv1.ConditionTrue && available.Reason != "":
		return fmt.Sprintf("%s (%s)", available.Status, available.Reason)
	}
	return string(available.Status)
}

func validateAPIService(s *apiregistrationv1.APIService, builtin func(schema.GroupVersion) bool) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	metadata := field.NewPath("metadata")
	errs = append(errs, validateAPIServiceName(s, s.GenerateName, metadata.Child("generateName"))...)
	errs = append(errs, validateAPIServiceName(s, s.Name, metadata.Child("name"))...)
	if s.Spec.Group == "" && s.Spec.Version != "v1" {
		errs = append(errs, field.Required(spec.Child("group"), "only v1 may have an empty group and it better be legacy kube"))
	}
	errs = append(errs, validate.OptionalSubdomain(s.Spec.Group, spec.Child("group"))...)
	errs = append(errs, validate.FromMessages(s.Spec.Version, spec.Child("version"), utilvalidation.IsDNS1035Label(s.Spec.Version))...)
	if p := s.Spec.GroupPriorityMinimum; p <= 0 || p > maxGroupPriority {
		errs = append(errs, field.Invalid(spec.Child("groupPriorityMinimum"), p, "must be positive and less than 20000"))
	}
	if p := s.Spec.VersionPriority; p <= 0 || p > maxVersionPriority {
		errs = append(errs, field.Invalid(spec.Child("versionPriority"), p, "must be positive and less than 1000"))
	}
	if s.Spec.Service == nil {
		return append(errs, validateLocalAPIService(s, spec)...)
	}
	if version := (schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}); builtin(version) {
		errs = append(errs, field.Forbidden(spec.Child("service"), fmt.Sprintf("%s is served by this server", version)))
	}
	return append(errs, validateServiceOfAPIService(s, spec)...)
}

// validateAPIServiceName checks that a valid name is the name of the group version. A generateName never is.
func validateAPIServiceName(s *apiregistrationv1.APIService, name string, at *field.Path) field.ErrorList {
	required := s.Spec.Version + "." + s.Spec.Group
	if name == "" || name == required || len(path.ValidatePathSegmentName(name, false)) > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, name, fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", required))}
}

// validateLocalAPIService checks an APIService without a Service.
func validateLocalAPIService(s *apiregistrationv1.APIService, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n := len(s.Spec.CABundle); n != 0 {
		errs = append(errs, field.Invalid(spec.Child("caBundle"), fmt.Sprintf("%d bytes", n), "local APIServices may not have a caBundle"))
	}
	if s.Spec.InsecureSkipTLSVerify {
		errs = append(errs, field.Invalid(spec.Child("insecureSkipTLSVerify"), true, "local APIServices may not have insecureSkipTLSVerify"))
	}
	return errs
}

// validateServiceOfAPIService checks the connection to another server.
func validateServiceOfAPIService(s *apiregistrationv1.APIService, spec *field.Path) field.ErrorList {
	service, at := s.Spec.Service, spec.Child("service")
	errs := slices.Concat(
		validate.Required(service.Namespace, at.Child("namespace")),
		validate.Required(service.Name, at.Child("name")),
	)
	port := service.Port // never nil after defaulting
	if complaints := utilvalidation.IsValidPortNum(int(*port)); len(complaints) > 0 {
		errs = append(errs, field.Invalid(at.Child("port"), *port, "port is not valid: "+complaints[0]))
	}
	if s.Spec.InsecureSkipTLSVerify && len(s.Spec.CABundle) > 0 {
		errs = append(errs, field.Invalid(spec.Child("insecureSkipTLSVerify"), true, "may not be true if caBundle is present"))
	}
	return errs
}

func validateAPIServiceConditions(s *apiregistrationv1.APIService) field.ErrorList {
	return validate.Each(s.Status.Conditions, field.NewPath("status", "conditions"), func(c *apiregistrationv1.APIServiceCondition, at *field.Path) field.ErrorList {
		return validate.OneOfPtr(&c.Status, at.Child("status"), apiregistrationv1.ConditionTrue, apiregistrationv1.ConditionFalse, apiregistrationv1.ConditionUnknown)
	})
}
