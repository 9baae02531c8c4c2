package core

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func secrets() registry.Resource {
	return registry.Define[corev1.Secret, corev1.SecretList](registry.Resource{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "Secret",
		Plural:              "secrets",
		Namespaced:          true,
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, []table.Column{
		table.Text("Type", "Type of the content.", func(s *corev1.Secret) string { return string(s.Type) }),
		table.Number("Data", "Entries.", func(s *corev1.Secret) int { return len(s.Data) }),
		table.Age(),
	}, registry.Strategy[*corev1.Secret]{
		Warn:             warnOfSecret,
		Default:          defaultSecret,
		Validate:         validateSecret,
		ValidateUpdate:   validateSecretUpdate,
		SelectableFields: func(s *corev1.Secret) fields.Set { return fields.Set{"type": string(s.Type)} },
	})
}

// defaultSecret also moves stringData, which is write-only, into data. Stored objects have no stringData.
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

// validateSecretType checks that a secret has the entries that its type requires.
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
	default: // other types are up to the user
	}
	var errs field.ErrorList
	for _, key := range needed {
		content, ok := s.Data[key]
		if !ok {
			errs = append(errs, field.Required(path.Key(key), ""))
			continue
		}
		if key == corev1.DockerConfigKey || key == corev1.DockerConfigJsonKey {
			if err := json.Unmarshal(content, &map[string]any{}); err != nil {
				errs = append(errs, field.Invalid(path.Key(key), "<secret contents redacted>", err.Error()))
			}
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
