package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func configMaps() registry.Resource {
	return registry.Define[corev1.ConfigMap, corev1.ConfigMapList](registry.Resource{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "ConfigMap",
		Plural:              "configmaps",
		Namespaced:          true,
		ShortNames:          []string{"cm"},
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, []table.Column{
		table.Number("Data", "Entries.", func(cm *corev1.ConfigMap) int { return len(cm.Data) + len(cm.BinaryData) }),
		table.Age(),
	}, registry.Strategy[*corev1.ConfigMap]{
		Validate:       validateConfigMap,
		ValidateUpdate: validateConfigMapUpdate,
	})
}

// contentLimit is the maximum size of all entries of a ConfigMap or a Secret, in bytes.
const contentLimit = corev1.MaxSecretSize

func validateConfigMap(cm *corev1.ConfigMap) field.ErrorList {
	data, binary := field.NewPath("data"), field.NewPath("binaryData")
	errs := append(validateKeys(cm.Data, data), validateKeys(cm.BinaryData, binary)...)
	size := 0
	for key, value := range cm.Data {
		if _, ok := cm.BinaryData[key]; ok {
			errs = append(errs, field.Invalid(data.Key(key), key, "duplicate of key present in binaryData"))
		}
		size += len(value)
	}
	for _, value := range cm.BinaryData {
		size += len(value)
	}
	if size > contentLimit {
		// The error does not repeat the content, which is large.
		errs = append(errs, field.TooLong(field.NewPath(""), "", contentLimit))
	}
	return errs
}

func validateKeys[V any](entries map[string]V, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for key := range entries {
		errs = append(errs, validate.FromMessages(key, path.Key(key), validation.IsConfigMapKey(key))...)
	}
	return errs
}

func validateConfigMapUpdate(cm, old *corev1.ConfigMap) field.ErrorList {
	if !ptr.Deref(old.Immutable, false) {
		return nil
	}
	return append(stillImmutable(cm.Immutable),
		append(frozen(cm.Data, old.Data, field.NewPath("data")),
			frozen(cm.BinaryData, old.BinaryData, field.NewPath("binaryData"))...)...)
}

const frozenText = "field is immutable when `immutable` is set"

// stillImmutable: an immutable object cannot be made mutable again.
func stillImmutable(value *bool) field.ErrorList {
	if ptr.Deref(value, false) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("immutable"), frozenText)}
}

func frozen(value, old any, path *field.Path) field.ErrorList {
	if equality.Semantic.DeepEqual(value, old) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, frozenText)}
}
