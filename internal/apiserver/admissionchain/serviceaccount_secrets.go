package admissionchain

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// enforceAnnotation on an account restricts its pods to the secrets that the account lists. Kubernetes has
// deprecated it.
const enforceAnnotation = "kubernetes.io/enforce-mountable-secrets"

// checkMirror checks that a mirror pod uses no service account, secret or token.
func checkMirror(pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return errors.New("a mirror pod may not reference service accounts")
	}
	if len(secretsOf(pod)) > 0 || len(pod.Spec.ImagePullSecrets) > 0 {
		return errors.New("a mirror pod may not reference secrets")
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.ServiceAccountToken != nil {
				return errors.New("a mirror pod may not use ServiceAccountToken volume projections")
			}
		}
	}
	return nil
}

// checkSecrets checks that a pod uses only secrets that its account lists, if the account requires that. Of
// a running pod, only ephemeral containers are checked.
func checkSecrets(account *corev1.ServiceAccount, pod *corev1.Pod, running bool) error { //nolint:revive // a state of the pod
	if enforced, _ := strconv.ParseBool(account.Annotations[enforceAnnotation]); !enforced {
		return nil
	}
	used := ephemeralSecretsOf(pod)
	if !running {
		used = append(secretsOf(pod), used...)
	}
	for _, u := range used {
		if !slices.ContainsFunc(account.Secrets, func(s corev1.ObjectReference) bool { return s.Name == u.secret }) {
			return fmt.Errorf("%s secret.secretName=%q is not allowed because service account %s does not reference that secret", u.by, u.secret, account.Name)
		}
	}
	if running {
		return nil
	}
	for i, s := range pod.Spec.ImagePullSecrets {
		if !slices.Contains(account.ImagePullSecrets, s) {
			return fmt.Errorf("imagePullSecrets[%d].name=%q is not allowed because service account %s does not reference that imagePullSecret", i, s.Name, account.Name)
		}
	}
	return nil
}

// secretUse is the use of a secret by a part of a pod.
type secretUse struct{ by, secret string }

// secretsOf returns the uses of secrets by volumes and containers.
func secretsOf(pod *corev1.Pod) []secretUse {
	var uses []secretUse
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil {
			uses = append(uses, secretUse{"volume with", v.Secret.SecretName})
		}
		if v.Projected != nil {
			for _, source := range v.Projected.Sources {
				if source.Secret != nil {
					uses = append(uses, secretUse{"volume with", source.Secret.Name})
				}
			}
		}
	}
	for _, c := range pod.Spec.InitContainers {
		uses = append(uses, secretsInEnvironment("init container "+c.Name, c.Env, c.EnvFrom)...)
	}
	for _, c := range pod.Spec.Containers {
		uses = append(uses, secretsInEnvironment("container "+c.Name, c.Env, c.EnvFrom)...)
	}
	return uses
}

func ephemeralSecretsOf(pod *corev1.Pod) []secretUse {
	var uses []secretUse
	for _, c := range pod.Spec.EphemeralContainers {
		uses = append(uses, secretsInEnvironment("ephemeral container "+c.Name, c.Env, c.EnvFrom)...)
	}
	return uses
}

func secretsInEnvironment(by string, env []corev1.EnvVar, from []corev1.EnvFromSource) []secretUse {
	var uses []secretUse
	for _, e := range env {
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			uses = append(uses, secretUse{by + " with envVar " + e.Name + " referencing", e.ValueFrom.SecretKeyRef.Name})
		}
	}
	for _, f := range from {
		if f.SecretRef != nil {
			uses = append(uses, secretUse{by + " with envFrom referencing", f.SecretRef.Name})
		}
	}
	return uses
}
