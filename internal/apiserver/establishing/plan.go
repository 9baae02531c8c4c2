package establishing

import (
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claim is what a definition calls its resource.
type claim struct {
	resources []string // plural, singular and short names
	kinds     []string // of an object and of a list
}

func claimOf(plural, singular string, short []string, kinds ...string) claim {
	return claim{append([]string{plural, singular}, short...), kinds}
}

// conflicts reports whether two definitions of a group cannot both have their names.
func (c claim) conflicts(other claim) bool {
	share := func(a, b []string) bool {
		return slices.ContainsFunc(a, func(name string) bool { return name != "" && slices.Contains(b, name) })
	}
	return share(c.resources, other.resources) || share(c.kinds, other.kinds)
}

// established returns the status of a new definition whose names nobody else has. It is what
// apiextensions' controllers write, one after the other. It returns false for a definition about
// which they have more to decide.
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

// inEffect makes a definition look as if it had been established before that time. It is not for
// what is stored: at most, a controller writes a transition two seconds early.
func inEffect(definition *apiextensionsv1.CustomResourceDefinition, now time.Time) {
	c := apihelpers.FindCRDCondition(definition, apiextensionsv1.Established)
	if before := now.Add(-catchUp); c != nil && c.LastTransitionTime.After(before) {
		c.LastTransitionTime = metav1.NewTime(before)
	}
}
