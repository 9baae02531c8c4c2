package aggregation

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
)

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
