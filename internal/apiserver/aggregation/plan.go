package aggregation

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
)

// managedLabel marks an APIService that the server maintains. Its value says when.
const managedLabel = "kube-aggregator.kubernetes.io/automanaged"

const (
	onStart = "onstart" // reconciled when a server starts; an administrator may change it in between
	always  = "true"    // reconciled after every change
)

// step is the write for one APIService; nil for none.
//
//sumtype:decl
type step interface{ isStep() }

type (
	create struct{ object *apiregistrationv1.APIService }
	// update replaces the spec, and keeps the rest of the observed object.
	update struct{ object *apiregistrationv1.APIService }
	// remove deletes the object, with the observed object as precondition.
	remove struct{ object *apiregistrationv1.APIService }
)

func (create) isStep() {}
func (update) isStep() {}
func (remove) isStep() {}

// moment is the time of a decision: while the server starts, or later.
type moment int

const (
	running moment = iota
	starting
)

// decide returns the step from the observed to the desired APIService; each may be nil.
func decide(desired, observed *apiregistrationv1.APIService, now moment) step {
	switch {
	case observed == nil && desired == nil:
		return nil
	case observed == nil:
		if desired.Labels[managedLabel] == onStart && now != starting {
			return nil
		}
		return create{desired}
	}
	switch managed := observed.Labels[managedLabel]; {
	case managed != onStart && managed != always: // a user has created it
		return nil
	case managed == onStart && now != starting:
		return nil
	case desired == nil:
		return remove{observed}
	case equality.Semantic.DeepEqual(desired.Spec, observed.Spec):
		return nil
	}
	changed := observed.DeepCopy()
	changed.Spec = desired.Spec
	return update{changed}
}

// nameOf returns the name of the APIService of a group version.
func nameOf(version schema.GroupVersion) string { return version.Version + "." + version.Group }

// localService returns the APIService of a group version that this server serves.
func localService(version schema.GroupVersion, p Priority, managed string) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: nameOf(version), Labels: map[string]string{managedLabel: managed}},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: version.Group, Version: version.Version, GroupPriorityMinimum: p.Group, VersionPriority: p.Version,
		},
	}
}

// versionsOf returns the served group versions of a definition.
func versionsOf(d *apiextensionsv1.CustomResourceDefinition) []schema.GroupVersion {
	var served []schema.GroupVersion
	for _, v := range d.Spec.Versions {
		if v.Served {
			served = append(served, schema.GroupVersion{Group: d.Spec.Group, Version: v.Name})
		}
	}
	return served
}

// withCondition returns the APIService with a condition, or false if it has that condition already. The
// time of the condition changes only with its status.
func withCondition(s *apiregistrationv1.APIService, condition apiregistrationv1.APIServiceCondition, now metav1.Time) (*apiregistrationv1.APIService, bool) {
	stored := helper.GetAPIServiceConditionByType(s, condition.Type)
	if stored != nil && stored.Status == condition.Status && stored.Reason == condition.Reason && stored.Message == condition.Message {
		return nil, false
	}
	condition.LastTransitionTime = now
	changed := s.DeepCopy()
	helper.SetAPIServiceCondition(changed, condition)
	return changed, true
}
