package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
)

func serviceAccounts() registry.Resource {
	return registry.Define[corev1.ServiceAccount, corev1.ServiceAccountList](registry.Resource{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "ServiceAccount",
		Plural:              "serviceaccounts",
		Namespaced:          true,
		ShortNames:          []string{"sa"},
		ValidateName:        apivalidation.ValidateServiceAccountName,
		UnconditionalUpdate: true,
		ReturnDeletedObject: true,
	}, []table.Column{
		table.Number("Secrets", "Secrets that pods of the account may mount.", func(sa *corev1.ServiceAccount) int { return len(sa.Secrets) }),
		table.Age(),
	}, registry.Strategy[*corev1.ServiceAccount]{
		Warn:             warnOfAccount,
		PrepareForCreate: nameSecrets,
		PrepareForUpdate: func(sa, _ *corev1.ServiceAccount) { nameSecrets(sa) },
	})
}

// nameSecrets keeps only the names of secrets, which are in the namespace of the account.
func nameSecrets(sa *corev1.ServiceAccount) {
	// The array may be shared with the object that was sent.
	sa.Secrets = slices.Clone(sa.Secrets)
	for i, secret := range sa.Secrets {
		sa.Secrets[i] = corev1.ObjectReference{Name: secret.Name}
	}
}
