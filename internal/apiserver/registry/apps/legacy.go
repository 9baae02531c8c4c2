package apps

import (
	"math"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// The legacy versions of each resource, the newer one first.

func legacyDeployments() []registry.LegacyVersion {
	return []registry.LegacyVersion{
		appsBeta2(&appsv1beta2.Deployment{}, &appsv1beta2.DeploymentList{}),
		appsBeta1(&appsv1beta1.Deployment{}, &appsv1beta1.DeploymentList{}),
		extensionsBeta1(&extensionsv1beta1.Deployment{}, &extensionsv1beta1.DeploymentList{}),
	}
}

func legacyReplicaSets() []registry.LegacyVersion {
	return []registry.LegacyVersion{
		appsBeta2(&appsv1beta2.ReplicaSet{}, &appsv1beta2.ReplicaSetList{}),
		extensionsBeta1(&extensionsv1beta1.ReplicaSet{}, &extensionsv1beta1.ReplicaSetList{}),
	}
}

func legacyStatefulSets() []registry.LegacyVersion {
	return []registry.LegacyVersion{
		appsBeta2(&appsv1beta2.StatefulSet{}, &appsv1beta2.StatefulSetList{}),
		appsBeta1(&appsv1beta1.StatefulSet{}, &appsv1beta1.StatefulSetList{}),
	}
}

func legacyDaemonSets() []registry.LegacyVersion {
	return []registry.LegacyVersion{
		appsBeta2(&appsv1beta2.DaemonSet{}, &appsv1beta2.DaemonSetList{}),
		extensionsBeta1(&extensionsv1beta1.DaemonSet{}, &extensionsv1beta1.DaemonSetList{}),
	}
}

func legacyControllerRevisions() []registry.LegacyVersion {
	return []registry.LegacyVersion{
		appsBeta2(&appsv1beta2.ControllerRevision{}, &appsv1beta2.ControllerRevisionList{}),
		appsBeta1(&appsv1beta1.ControllerRevision{}, &appsv1beta1.ControllerRevisionList{}),
	}
}

// appsBeta2 has the defaults of apps/v1, and all of its fields.
func appsBeta2(obj, list runtime.Object) registry.LegacyVersion {
	return registry.LegacyVersion{GroupVersion: appsv1beta2.SchemeGroupVersion, Object: obj, List: list, Scale: &appsv1beta2.Scale{}}
}

func appsBeta1(obj, list runtime.Object) registry.LegacyVersion {
	return registry.LegacyVersion{
		GroupVersion: appsv1beta1.SchemeGroupVersion, Object: obj, List: list, Scale: &appsv1beta1.Scale{},
		Default: defaultAppsBeta1, Keep: keepRetired, Restore: restoreRetired,
	}
}

func extensionsBeta1(obj, list runtime.Object) registry.LegacyVersion {
	return registry.LegacyVersion{
		GroupVersion: extensionsv1beta1.SchemeGroupVersion, Object: obj, List: list, Scale: &extensionsv1beta1.Scale{},
		Default: defaultExtensionsBeta1, Keep: keepRetired, Restore: restoreRetired,
	}
}

// defaultAppsBeta1 sets the defaults in which apps/v1beta1 differs from apps/v1.
func defaultAppsBeta1(obj runtime.Object) {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		defaultFromTemplate(&o.ObjectMeta, &o.Spec.Selector, o.Spec.Template.Labels)
		registry.SetDefaultPtr(&o.Spec.RevisionHistoryLimit, 2)
	case *appsv1.StatefulSet:
		defaultFromTemplate(&o.ObjectMeta, &o.Spec.Selector, o.Spec.Template.Labels)
		registry.SetDefault(&o.Spec.UpdateStrategy.Type, appsv1.OnDeleteStatefulSetStrategyType)
	}
}

// defaultExtensionsBeta1 sets the defaults in which extensions/v1beta1 differs from apps/v1.
func defaultExtensionsBeta1(obj runtime.Object) {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		defaultFromTemplate(&o.ObjectMeta, &o.Spec.Selector, o.Spec.Template.Labels)
		registry.SetDefaultPtr(&o.Spec.RevisionHistoryLimit, math.MaxInt32)
		registry.SetDefaultPtr(&o.Spec.ProgressDeadlineSeconds, math.MaxInt32)
		registry.SetDefault(&o.Spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
		if o.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
			registry.SetDefaultPtr(&o.Spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
			registry.SetDefaultPtr(&o.Spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
			registry.SetDefaultPtr(&o.Spec.Strategy.RollingUpdate.MaxSurge, intstr.FromInt32(1))
		}
	case *appsv1.ReplicaSet:
		defaultFromTemplate(&o.ObjectMeta, &o.Spec.Selector, o.Spec.Template.Labels)
	case *appsv1.DaemonSet:
		defaultFromTemplate(&o.ObjectMeta, &o.Spec.Selector, o.Spec.Template.Labels)
		registry.SetDefault(&o.Spec.UpdateStrategy.Type, appsv1.OnDeleteDaemonSetStrategyType)
	}
}

// defaultFromTemplate defaults the selector and the object's labels to the labels of the
// template.
func defaultFromTemplate(m *metav1.ObjectMeta, selector **metav1.LabelSelector, labels map[string]string) {
	if len(labels) == 0 {
		return
	}
	if *selector == nil {
		*selector = &metav1.LabelSelector{MatchLabels: labels}
	}
	if len(m.Labels) == 0 {
		m.Labels = labels
	}
}

// keepRetired puts the two fields that apps/v1 no longer has into annotations.
func keepRetired(legacy runtime.Object) {
	switch o := legacy.(type) {
	case *extensionsv1beta1.DaemonSet:
		if generation := o.Spec.TemplateGeneration; generation != 0 {
			annotate(&o.ObjectMeta, appsv1.DeprecatedTemplateGeneration, generation)
		}
	case *extensionsv1beta1.Deployment:
		if o.Spec.RollbackTo != nil {
			annotate(&o.ObjectMeta, appsv1.DeprecatedRollbackTo, o.Spec.RollbackTo.Revision)
		}
	case *appsv1beta1.Deployment:
		if o.Spec.RollbackTo != nil {
			annotate(&o.ObjectMeta, appsv1.DeprecatedRollbackTo, o.Spec.RollbackTo.Revision)
		}
	}
}

func annotate(m *metav1.ObjectMeta, key string, value int64) {
	metav1.SetMetaDataAnnotation(m, key, strconv.FormatInt(value, 10))
}

// restoreRetired undoes keepRetired.
func restoreRetired(legacy runtime.Object) {
	switch o := legacy.(type) {
	case *extensionsv1beta1.DaemonSet:
		if n, ok := takeAnnotation(&o.ObjectMeta, appsv1.DeprecatedTemplateGeneration); ok {
			o.Spec.TemplateGeneration = n
		}
	case *extensionsv1beta1.Deployment:
		if n, ok := takeAnnotation(&o.ObjectMeta, appsv1.DeprecatedRollbackTo); ok {
			o.Spec.RollbackTo = &extensionsv1beta1.RollbackConfig{Revision: n}
		}
	case *appsv1beta1.Deployment:
		if n, ok := takeAnnotation(&o.ObjectMeta, appsv1.DeprecatedRollbackTo); ok {
			o.Spec.RollbackTo = &appsv1beta1.RollbackConfig{Revision: n}
		}
	}
}

// takeAnnotation removes an annotation that is a number and returns it. Any other value was not
// written by annotate, and is kept.
func takeAnnotation(m *metav1.ObjectMeta, key string) (int64, bool) {
	value, err := strconv.ParseInt(m.Annotations[key], 10, 64)
	if err != nil {
		return 0, false
	}
	delete(m.Annotations, key)
	if len(m.Annotations) == 0 {
		m.Annotations = nil
	}
	return value, true
}
