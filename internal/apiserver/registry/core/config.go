package core

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
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

// contentLimit is what all entries of a ConfigMap or a Secret may add up to, in bytes.
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
		// The content is not repeated: it is large.
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

// stillImmutable: what was promised never to change cannot be set free again.
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

func secrets() registry.Resource {
	return registry.Define[corev1.Secret, corev1.SecretList](registry.Resource{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "Secret",
		Plural:              "secrets",
		Namespaced:          true,
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, []table.Column{
		table.Text("Type", "What the entries mean.", func(s *corev1.Secret) string { return string(s.Type) }),
		table.Number("Data", "Entries.", func(s *corev1.Secret) int { return len(s.Data) }),
		table.Age(),
	}, registry.Strategy[*corev1.Secret]{
		Default:          defaultSecret,
		Validate:         validateSecret,
		ValidateUpdate:   validateSecretUpdate,
		SelectableFields: func(s *corev1.Secret) fields.Set { return fields.Set{"type": string(s.Type)} },
	})
}

// defaultSecret also turns stringData, which is for writing only, into what it is
// short for; nothing that is stored or read has it.
func defaultSecret(s *corev1.Secret) {
	registry.SetDefault(&s.Type, corev1.SecretTypeOpaque)
	if len(s.StringData) == 0 {
		s.StringData = nil
		return
	}
	data := maps.Clone(s.Data)
	if data == nil {
		data = map[string][]byte{}
	}
	for key, value := range s.StringData {
		data[key] = []byte(value)
	}
	s.Data, s.StringData = data, nil
}

func validateSecret(s *corev1.Secret) field.ErrorList {
	path := field.NewPath("data")
	errs := validateKeys(s.Data, path)
	size := 0
	for _, value := range s.Data {
		size += len(value)
	}
	if size > contentLimit {
		errs = append(errs, field.TooLong(path, "", contentLimit))
	}
	return append(errs, validateSecretType(s, path)...)
}

// validateSecretType checks that a secret has the entries that its type promises.
func validateSecretType(s *corev1.Secret, path *field.Path) field.ErrorList {
	var needed []string
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			return field.ErrorList{field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), "")}
		}
	case corev1.SecretTypeDockercfg:
		needed = []string{corev1.DockerConfigKey}
	case corev1.SecretTypeDockerConfigJson:
		needed = []string{corev1.DockerConfigJsonKey}
	case corev1.SecretTypeTLS:
		needed = []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey}
	case corev1.SecretTypeSSHAuth:
		needed = []string{corev1.SSHAuthPrivateKey}
	case corev1.SecretTypeBasicAuth:
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		_, password := s.Data[corev1.BasicAuthPasswordKey]
		if !user && !password {
			needed = []string{corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey}
		}
	default: // anyone may invent types
	}
	var errs field.ErrorList
	for _, key := range needed {
		content, ok := s.Data[key]
		switch {
		case !ok:
			errs = append(errs, field.Required(path.Key(key), ""))
		case (key == corev1.DockerConfigKey || key == corev1.DockerConfigJsonKey) && !json.Valid(content):
			errs = append(errs, field.Invalid(path.Key(key), "<secret contents redacted>", "must be valid JSON"))
		}
	}
	return errs
}

func validateSecretUpdate(s, old *corev1.Secret) field.ErrorList {
	errs := validate.Immutable(s.Type, old.Type, field.NewPath("type"))
	if ptr.Deref(old.Immutable, false) {
		errs = append(errs, stillImmutable(s.Immutable)...)
		errs = append(errs, frozen(s.Data, old.Data, field.NewPath("data"))...)
	}
	return errs
}

func serviceAccounts() registry.Resource {
	return registry.Define[corev1.ServiceAccount, corev1.ServiceAccountList](registry.Resource{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "ServiceAccount",
		Plural:              "serviceaccounts",
		Namespaced:          true,
		ShortNames:          []string{"sa"},
		ValidateName:        apivalidation.ValidateServiceAccountName,
		ReturnDeletedObject: true,
	}, []table.Column{
		table.Number("Secrets", "Secrets that pods of the account may mount.", func(sa *corev1.ServiceAccount) int { return len(sa.Secrets) }),
		table.Age(),
	}, registry.Strategy[*corev1.ServiceAccount]{})
}
