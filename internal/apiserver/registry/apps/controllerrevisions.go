package apps

import (
	"encoding/json"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func controllerRevisions() registry.Resource {
	return registry.Define[appsv1.ControllerRevision, appsv1.ControllerRevisionList](registry.Resource{
		GroupVersion:        appsv1.SchemeGroupVersion,
		Legacy:              legacyControllerRevisions(),
		Kind:                "ControllerRevision",
		Plural:              "controllerrevisions",
		Namespaced:          true,
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, []table.Column{
		table.Text("Controller", "Controller that made the revision.", controllerText[*appsv1.ControllerRevision]),
		table.Number("Revision", "Number of the revision.", func(r *appsv1.ControllerRevision) int { return int(r.Revision) }),
		table.Age(),
	}, registry.Strategy[*appsv1.ControllerRevision]{
		Validate: func(r *appsv1.ControllerRevision) field.ErrorList {
			return validate.NotNegative(&r.Revision, field.NewPath("revision"))
		},
		ValidateCreate: func(r *appsv1.ControllerRevision) field.ErrorList {
			return validateRevisionData(r.Data, field.NewPath("data"))
		},
		ValidateUpdate: func(r, old *appsv1.ControllerRevision) field.ErrorList {
			return validate.Immutable(r.Data, old.Data, field.NewPath("data"))
		},
	})
}

// validateRevisionData checks that the data that a controller has recorded is a JSON object.
func validateRevisionData(data runtime.RawExtension, at *field.Path) field.ErrorList {
	if data.Raw == nil {
		return field.ErrorList{field.Required(at, "data is mandatory")}
	}
	var value any
	if err := json.Unmarshal(data.Raw, &value); err != nil {
		return field.ErrorList{field.Invalid(at, "<value omitted>", "error parsing data: "+err.Error())}
	}
	switch value.(type) {
	case nil:
		return field.ErrorList{field.Required(at, "data is mandatory")}
	case map[string]any:
		return nil
	}
	return field.ErrorList{field.Required(at, "data must be a valid JSON object")}
}

// controllerText names the controller owner of an object.
func controllerText[P metav1.Object](obj P) string {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil {
		return table.None
	}
	name := strings.ToLower(ref.Kind)
	if group, _, grouped := strings.Cut(ref.APIVersion, "/"); grouped {
		name += "." + group
	}
	return name + "/" + ref.Name
}
