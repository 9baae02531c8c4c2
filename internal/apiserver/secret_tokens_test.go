package apiserver_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/controller/serviceaccount"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// startTokens runs the controller of tokens in Secrets, as its own user.
func (s *server) startTokens(t *testing.T) {
	t.Helper()
	config, err := s.TokensController()
	if err != nil {
		t.Fatal(err)
	}
	c := serviceaccount.NewTokens(serviceaccount.TokensConfig{Client: typed(t, config), Authority: s.authority.Certificate(), Sign: s.SignForSecret})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx, slog.New(slog.DiscardHandler), clock.RealClock{}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// tokenSecret creates a Secret for a token of a service account.
func (s *server) tokenSecret(t *testing.T, namespace, name, account string) {
	t.Helper()
	_, err := typed(t, s.config).CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}}, Type: corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// tokenIn waits until a Secret has a token.
func (s *server) tokenIn(t *testing.T, namespace, name string) *corev1.Secret {
	t.Helper()
	var filled *corev1.Secret
	eventually.Agrees(t, func() string {
		secret, err := typed(t, s.config).CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
			return fmt.Sprintf("no token: %v", err)
		}
		filled = secret
		return ""
	})
	return filled
}

// becomesAbsent waits until a Secret no longer exists.
func (s *server) becomesAbsent(t *testing.T, namespace, name string) {
	t.Helper()
	eventually.Agrees(t, func() string {
		_, err := typed(t, s.config).CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Sprintf("secret %s: %v", name, err)
		}
		return ""
	})
}

func (s *server) wantCode(t *testing.T, token, when string, want int) authenticationv1.UserInfo {
	t.Helper()
	info, code := s.whoami(t, token)
	if code != want {
		t.Errorf("%s: %d, want %d", when, code, want)
	}
	return info
}

// A token in a Secret is valid as long as the Secret contains it and the service account exists.
func TestTokenInASecret(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.startTokens(t)
	namespace := s.namespace(t)
	client := typed(t, s.config).CoreV1()
	account := s.account(t, namespace, "robot")
	s.tokenSecret(t, namespace, "robot-token", "robot")
	secret := s.tokenIn(t, namespace, "robot-token")
	token := string(secret.Data[corev1.ServiceAccountTokenKey])
	if secret.Annotations[corev1.ServiceAccountUIDKey] != string(account.UID) || string(secret.Data["namespace"]) != namespace || string(secret.Data["ca.crt"]) != string(s.authority.Certificate()) {
		t.Errorf("%v %q", secret.Annotations, secret.Data)
	}
	info := s.wantCode(t, token, "new", http.StatusCreated)
	if info.Username != "system:serviceaccount:"+namespace+":robot" || info.UID != string(account.UID) {
		t.Errorf("%+v", info)
	}
	used, err := client.Secrets(namespace).Get(t.Context(), "robot-token", metav1.GetOptions{})
	if err != nil || used.Labels["kubernetes.io/legacy-token-last-used"] == "" {
		t.Errorf("%v %v: no label of the last use", used.Labels, err)
	}

	label := func(value any) {
		t.Helper()
		o := s.collection(t, gvk("", "v1", "Secret"), "secrets", namespace, nil)
		if _, err := o.patch("robot-token", types.MergePatchType, map[string]any{"metadata": map[string]any{"labels": map[string]any{"kubernetes.io/legacy-token-invalid-since": value}}}); err != nil {
			t.Fatal(err)
		}
	}
	label("2026-01-01")
	s.wantCode(t, token, "marked invalid", http.StatusUnauthorized)
	label(nil)
	s.wantCode(t, token, "no longer marked invalid", http.StatusCreated)

	// The Secret is deleted, and a new one of the same name does not make the token valid again.
	if err := client.Secrets(namespace).Delete(t.Context(), "robot-token", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.wantCode(t, token, "its secret is gone", http.StatusUnauthorized)
	s.tokenSecret(t, namespace, "robot-token", "robot")
	next := string(s.tokenIn(t, namespace, "robot-token").Data[corev1.ServiceAccountTokenKey])
	s.wantCode(t, next, "the next one", http.StatusCreated)

	// The account is deleted, and its Secrets with it.
	if err := client.ServiceAccounts(namespace).Delete(t.Context(), "robot", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.wantCode(t, next, "its account is gone", http.StatusUnauthorized)
	s.becomesAbsent(t, namespace, "robot-token")
	s.account(t, namespace, "robot")
	s.wantCode(t, next, "another account has the name", http.StatusUnauthorized)
}

func TestTokenSecretOfAMissingAccountIsDeleted(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.startTokens(t)
	namespace := s.namespace(t)
	s.tokenSecret(t, namespace, "nobody-token", "nobody")
	s.becomesAbsent(t, namespace, "nobody-token")
	if s.account(t, namespace, "robot") == nil {
		t.Fatal("no account")
	}
	_, err := typed(t, s.config).CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "former-token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot", corev1.ServiceAccountUIDKey: "another"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.becomesAbsent(t, namespace, "former-token")
	_, err = typed(t, s.config).CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "unnamed"}, Type: corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("a token of no account: %v", err)
	}
}

func TestReferenceGoesWithItsTokenSecret(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.startTokens(t)
	namespace := s.namespace(t)
	accounts := typed(t, s.config).CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}, Secrets: []corev1.ObjectReference{{Name: "other"}, {Name: "robot-token"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.tokenSecret(t, namespace, "robot-token", "robot")
	s.tokenIn(t, namespace, "robot-token")
	if err := typed(t, s.config).CoreV1().Secrets(namespace).Delete(t.Context(), "robot-token", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Agrees(t, func() string {
		account, err := accounts.Get(t.Context(), "robot", metav1.GetOptions{})
		if err != nil || len(account.Secrets) != 1 || account.Secrets[0].Name != "other" {
			return fmt.Sprint(account.Secrets, err)
		}
		return ""
	})
}
