package registry

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/registry/rest"
)

// legacyType is a kind of the table in one of the group versions that it had before:
// the same objects in the same place, with other defaults, and with dependents that
// are orphaned unless the client says otherwise (R17, AS-08).
type legacyType struct {
	version   schema.GroupVersion
	kind      string
	obj, list runtime.Object // empty ones
}

// legacyTypes are all of them, the newer group version first.
func legacyTypes() []legacyType {
	beta2, beta1, extensions := appsv1beta2.SchemeGroupVersion, appsv1beta1.SchemeGroupVersion, extensionsv1beta1.SchemeGroupVersion
	return []legacyType{
		{beta2, "Deployment", &appsv1beta2.Deployment{}, &appsv1beta2.DeploymentList{}},
		{beta2, "ReplicaSet", &appsv1beta2.ReplicaSet{}, &appsv1beta2.ReplicaSetList{}},
		{beta2, "StatefulSet", &appsv1beta2.StatefulSet{}, &appsv1beta2.StatefulSetList{}},
		{beta2, "DaemonSet", &appsv1beta2.DaemonSet{}, &appsv1beta2.DaemonSetList{}},
		{beta2, "ControllerRevision", &appsv1beta2.ControllerRevision{}, &appsv1beta2.ControllerRevisionList{}},
		{beta1, "Deployment", &appsv1beta1.Deployment{}, &appsv1beta1.DeploymentList{}},
		{beta1, "StatefulSet", &appsv1beta1.StatefulSet{}, &appsv1beta1.StatefulSetList{}},
		{beta1, "ControllerRevision", &appsv1beta1.ControllerRevision{}, &appsv1beta1.ControllerRevisionList{}},
		{extensions, "Deployment", &extensionsv1beta1.Deployment{}, &extensionsv1beta1.DeploymentList{}},
		{extensions, "ReplicaSet", &extensionsv1beta1.ReplicaSet{}, &extensionsv1beta1.ReplicaSetList{}},
		{extensions, "DaemonSet", &extensionsv1beta1.DaemonSet{}, &extensionsv1beta1.DaemonSetList{}},
	}
}

// isOf tells whether a row is the kind that the legacy type is.
func (l legacyType) isOf(k Kind) bool {
	return k.GroupVersion == appsv1.SchemeGroupVersion && k.Kind == l.kind
}

// legacyVersions are the group versions in which a kind is served besides its own.
func (k Kind) legacyVersions() []schema.GroupVersion {
	var versions []schema.GroupVersion
	for _, l := range legacyTypes() {
		if l.isOf(k) {
			versions = append(versions, l.version)
		}
	}
	return versions
}

// addLegacy names the types of the legacy group versions.
func addLegacy(scheme *runtime.Scheme) {
	for _, l := range legacyTypes() {
		if !scheme.IsVersionRegistered(l.version) {
			metav1.AddToGroupVersion(scheme, l.version)
		}
		scheme.AddKnownTypes(l.version, l.obj, l.list)
	}
	for version, obj := range legacyScales() {
		scheme.AddKnownTypes(version, obj)
	}
}

// addLegacyConversions lets the hub make rows of the table from legacy types, and back.
func addLegacyConversions(hub *runtime.Scheme, rows []Kind) {
	addLegacyScaleConversions(hub)
	for _, l := range legacyTypes() {
		for _, k := range rows {
			if !l.isOf(k) {
				continue
			}
			if l.version.Group != k.GroupVersion.Group {
				// The library looks for the internal version in the group of the request.
				internal := schema.GroupVersion{Group: l.version.Group, Version: runtime.APIVersionInternal}
				hub.AddKnownTypeWithName(internal.WithKind(k.Kind), k.New())
				hub.AddKnownTypeWithName(internal.WithKind(k.Kind+"List"), k.NewList())
			}
			for _, pair := range [][2]runtime.Object{{l.obj, k.New()}, {l.list, k.NewList()}} {
				must(hub.AddConversionFunc(pair[0], pair[1], conversionTo(toHub)))
				must(hub.AddConversionFunc(pair[1], pair[0], conversionTo(fromHub)))
			}
			hub.AddTypeDefaultingFunc(l.obj, l.defaults(k))
			must(hub.AddFieldLabelConversionFunc(l.version.WithKind(l.kind), acceptLabels(k.FieldLabels())))
		}
	}
}

func conversionTo(convert func(from, to runtime.Object) error) conversion.ConversionFunc {
	return func(a, b any, _ conversion.Scope) error {
		return convert(a.(runtime.Object), b.(runtime.Object))
	}
}

// defaults fills in what a client of the legacy version left out.
func (l legacyType) defaults(k Kind) func(any) {
	return func(sent any) {
		obj, fresh := k.New(), reflect.New(reflect.TypeOf(l.obj).Elem())
		must(toHub(sent.(runtime.Object), obj))
		defaultAsBefore(l.version, obj)
		k.behaviour.defaults(obj)
		must(fromHub(obj, fresh.Interface().(runtime.Object)))
		reflect.ValueOf(sent).Elem().Set(fresh.Elem())
	}
}

// defaultAsBefore fills in what had another default in a legacy version than it has now.
func defaultAsBefore(version schema.GroupVersion, obj runtime.Object) {
	extensions := version == extensionsv1beta1.SchemeGroupVersion
	if version == appsv1beta2.SchemeGroupVersion {
		return // as in v1
	}
	switch o := obj.(type) {
	case *appsv1.Deployment:
		defaultFromTemplate(&o.ObjectMeta, &o.Spec.Selector, o.Spec.Template.Labels)
		if !extensions {
			setDefaultPtr(&o.Spec.RevisionHistoryLimit, 2)
			break
		}
		setDefaultPtr(&o.Spec.RevisionHistoryLimit, math.MaxInt32)
		setDefaultPtr(&o.Spec.ProgressDeadlineSeconds, math.MaxInt32)
		setDefault(&o.Spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
		if o.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
			setDefaultPtr(&o.Spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
			setDefaultPtr(&o.Spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
			setDefaultPtr(&o.Spec.Strategy.RollingUpdate.MaxSurge, intstr.FromInt32(1))
		}
	case *appsv1.ReplicaSet:
		defaultFromTemplate(&o.ObjectMeta, &o.Spec.Selector, o.Spec.Template.Labels)
	case *appsv1.DaemonSet:
		defaultFromTemplate(&o.ObjectMeta, &o.Spec.Selector, o.Spec.Template.Labels)
		setDefault(&o.Spec.UpdateStrategy.Type, appsv1.OnDeleteDaemonSetStrategyType)
	case *appsv1.StatefulSet:
		defaultFromTemplate(&o.ObjectMeta, &o.Spec.Selector, o.Spec.Template.Labels)
		setDefault(&o.Spec.UpdateStrategy.Type, appsv1.OnDeleteStatefulSetStrategyType)
	}
}

// defaultFromTemplate selects the pods of the template, and labels the object as them.
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

// toHub makes the type of a row from a legacy one. The versions name and nest their
// fields alike; the two fields that v1 has no more are kept in annotations.
func toHub(legacy, hub runtime.Object) error {
	legacy = legacy.DeepCopyObject()
	if err := eachOf(legacy, keepRetired); err != nil {
		return err
	}
	return transcribe(legacy, hub)
}

// fromHub makes a legacy type from that of a row.
func fromHub(hub, legacy runtime.Object) error {
	if err := transcribe(hub, legacy); err != nil {
		return err
	}
	return eachOf(legacy, restoreRetired)
}

// transcribe copies all fields that both types have. Legacy versions are rarely asked
// for; what that costs matters less than that no field is forgotten.
func transcribe(from, to runtime.Object) error {
	data, err := json.Marshal(from)
	if err != nil {
		return fmt.Errorf("convert a %T to a %T: %w", from, to, err)
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("convert a %T to a %T: %w", from, to, err)
	}
	return nil
}

// eachOf applies f to an object, or to each of a list.
func eachOf(obj runtime.Object, f func(runtime.Object) error) error {
	if meta.IsListType(obj) {
		return meta.EachListItem(obj, f)
	}
	return f(obj)
}

// keepRetired puts what v1 has no field for into an annotation.
func keepRetired(obj runtime.Object) error {
	key, value := "", int64(0)
	switch o := obj.(type) {
	case *extensionsv1beta1.DaemonSet:
		key, value = appsv1.DeprecatedTemplateGeneration, o.Spec.TemplateGeneration
	case *extensionsv1beta1.Deployment:
		if o.Spec.RollbackTo != nil {
			key, value = appsv1.DeprecatedRollbackTo, o.Spec.RollbackTo.Revision
		}
	case *appsv1beta1.Deployment:
		if o.Spec.RollbackTo != nil {
			key, value = appsv1.DeprecatedRollbackTo, o.Spec.RollbackTo.Revision
		}
	}
	if key == "" || key == appsv1.DeprecatedTemplateGeneration && value == 0 {
		return nil
	}
	m := metaOf(obj)
	annotations := m.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = strconv.FormatInt(value, 10)
	m.SetAnnotations(annotations)
	return nil
}

// restoreRetired does what keepRetired did the other way around. An annotation that is
// no number stays one: somebody else has written it.
func restoreRetired(obj runtime.Object) error {
	m := metaOf(obj)
	take := func(key string, set func(int64)) {
		value, err := strconv.ParseInt(m.GetAnnotations()[key], 10, 64)
		if err != nil {
			return
		}
		set(value)
		delete(m.GetAnnotations(), key)
		if len(m.GetAnnotations()) == 0 {
			m.SetAnnotations(nil)
		}
	}
	switch o := obj.(type) {
	case *extensionsv1beta1.DaemonSet:
		take(appsv1.DeprecatedTemplateGeneration, func(n int64) { o.Spec.TemplateGeneration = n })
	case *extensionsv1beta1.Deployment:
		take(appsv1.DeprecatedRollbackTo, func(n int64) { o.Spec.RollbackTo = &extensionsv1beta1.RollbackConfig{Revision: n} })
	case *appsv1beta1.Deployment:
		take(appsv1.DeprecatedRollbackTo, func(n int64) { o.Spec.RollbackTo = &appsv1beta1.RollbackConfig{Revision: n} })
	}
	return nil
}

// legacyStorages are the endpoints of a kind in its legacy versions: those of the main
// one, with another default for the dependents, and another type of /scale. They have no
// short names and no categories, so that a client which asks by one does not find the
// objects twice.
func legacyStorages(k Kind, version schema.GroupVersion, current map[string]rest.Storage) map[string]rest.Storage {
	main, ok := current[k.Resource].(*REST)
	if !ok {
		return nil
	}
	former := *main
	former.kind.Deletion.DefaultPropagation = metav1.DeletePropagationOrphan
	former.kind.Deletion.Resource.Group = version.Group // as answers name it
	former.kind.ShortNames, former.kind.Categories = nil, nil
	storages := map[string]rest.Storage{k.Resource: &former}
	if status, ok := current[k.Resource+"/status"]; ok {
		storages[k.Resource+"/status"] = status
	}
	if k.behaviour.scale != nil {
		storages[k.Resource+"/scale"] = &scaleREST{store: main.Store, kind: k, as: version}
	}
	return storages
}
