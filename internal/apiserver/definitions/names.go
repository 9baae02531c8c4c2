package definitions

import (
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claim is the names that a definition gives its resource.
type claim struct {
	resources []string // plural, singular and short names
	kinds     []string // of an object and of a list
}

func claimOf(plural, singular string, short []string, kinds ...string) claim {
	return claim{append([]string{plural, singular}, short...), kinds}
}

// conflicts reports whether two definitions of a group share a name.
func (c claim) conflicts(other claim) bool {
	share := func(a, b []string) bool {
		return slices.ContainsFunc(a, func(name string) bool { return name != "" && slices.Contains(b, name) })
	}
	return share(c.resources, other.resources) || share(c.kinds, other.kinds)
}

// established returns the status that apiextensions' controllers write, in two steps, for a new
// definition whose names are free. It returns false if the controllers must decide more about the
// definition.
func established(definition *apiextensions.CustomResourceDefinition, now metav1.Time) (apiextensions.CustomResourceDefinitionStatus, bool) {
	conversion := definition.Spec.Conversion
	if conversion != nil && conversion.Strategy != apiextensions.NoneConverter || len(definition.Status.Conditions) > 0 {
		return definition.Status, false
	}
	status := definition.Status
	status.AcceptedNames = *definition.Spec.Names.DeepCopy()
	for _, condition := range []apiextensions.CustomResourceDefinitionCondition{
		{Type: apiextensions.NamesAccepted, Reason: "NoConflicts", Message: "no conflicts found"},
		{Type: apiextensions.Established, Reason: "InitialNamesAccepted", Message: "the initial names have been accepted"},
	} {
		condition.Status, condition.LastTransitionTime = apiextensions.ConditionTrue, now
		status.Conditions = append(status.Conditions, condition)
	}
	return status, true
}

// catchUp is the time that apiextensions-apiserver gives other servers to learn of a definition
// before the first object is created (customresource_handler.go, 1.37).
const catchUp = 2 * time.Second

// inEffect backdates the Established condition of a definition in the informer, so that catchUp is
// over. The store keeps the real time, unless a controller writes a definition from the informer:
// then the transition is stored two seconds early.
func inEffect(definition *apiextensionsv1.CustomResourceDefinition, now time.Time) {
	c := apihelpers.FindCRDCondition(definition, apiextensionsv1.Established)
	if before := now.Add(-catchUp); c != nil && c.LastTransitionTime.After(before) {
		c.LastTransitionTime = metav1.NewTime(before)
	}
}
