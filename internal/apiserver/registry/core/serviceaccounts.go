package core

import (
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
		Warn: warnOfAccount,
		// Only the name of a secret counts: it is in the namespace of the account.
		Default: func(sa *corev1.ServiceAccount) {
			for i, secret := range sa.Secrets {
				sa.Secrets[i] = corev1.ObjectReference{Name: secret.Name}
			}
		},
	})
}
