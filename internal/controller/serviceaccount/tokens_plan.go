package serviceaccount

import (
	"bytes"
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// step is the next action for a token Secret.
type step int

const (
	keep step = iota
	fill
	remove
)

// decide returns the next step for a token Secret. account is its service account, nil if that does not
// exist; authority is the certificate that the Secret must have.
func decide(secret *corev1.Secret, account *corev1.ServiceAccount, authority []byte) step {
	switch {
	case secret.DeletionTimestamp != nil:
		return keep
	case account == nil:
		return remove
	case secret.Immutable != nil && *secret.Immutable:
		return keep // it cannot be filled
	case len(secret.Data[corev1.ServiceAccountTokenKey]) == 0, len(secret.Data[corev1.ServiceAccountNamespaceKey]) == 0,
		!bytes.Equal(secret.Data[corev1.ServiceAccountRootCAKey], authority):
		return fill
	}
	return keep
}

// belongs reports whether a Secret is for a service account: of that name, and of that UID if it names one.
func belongs(secret *corev1.Secret, account *corev1.ServiceAccount) bool {
	uid := secret.Annotations[corev1.ServiceAccountUIDKey]
	return account.Namespace == secret.Namespace && account.Name == secret.Annotations[corev1.ServiceAccountNameKey] && (uid == "" || uid == string(account.UID))
}

// filled returns the data of a Secret with the parts that it lacks. sign makes a token.
func filled(secret *corev1.Secret, authority []byte, sign func() (string, error)) (map[string][]byte, error) {
	data := maps.Clone(secret.Data)
	if data == nil {
		data = map[string][]byte{}
	}
	data[corev1.ServiceAccountRootCAKey] = authority
	if len(data[corev1.ServiceAccountNamespaceKey]) == 0 {
		data[corev1.ServiceAccountNamespaceKey] = []byte(secret.Namespace)
	}
	if len(data[corev1.ServiceAccountTokenKey]) == 0 {
		token, err := sign()
		if err != nil {
			return nil, err
		}
		data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	return data, nil
}
