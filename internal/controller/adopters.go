package controller

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

// Adopters are those of the owners, all of the namespace of obj, that may adopt it
// because their selectors match it. A selector that cannot be read or is empty matches
// nothing.
func Adopters[T metav1.Object](obj metav1.Object, owners []T, selector func(T) *metav1.LabelSelector) []cache.ObjectName {
	var keys []cache.ObjectName
	for _, owner := range owners {
		selects, err := metav1.LabelSelectorAsSelector(selector(owner))
		if err == nil && !selects.Empty() && selects.Matches(labels.Set(obj.GetLabels())) {
			keys = append(keys, cache.MetaObjectToName(owner))
		}
	}
	return keys
}
