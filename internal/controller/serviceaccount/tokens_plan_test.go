package serviceaccount

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func secret(change func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}},
		Data:       map[string][]byte{"token": []byte("t"), "namespace": []byte("ns"), "ca.crt": []byte("ca")},
	}
	if change != nil {
		change(s)
	}
	return s
}

func TestTokenSecretsAreFilledOrRemoved(t *testing.T) {
	robot := &corev1.ServiceAccount{}
	for name, test := range map[string]struct {
		change  func(*corev1.Secret)
		account *corev1.ServiceAccount
		want    step
	}{
		"complete":                   {nil, robot, keep},
		"new":                        {func(s *corev1.Secret) { s.Data = nil }, robot, fill},
		"without a token":            {func(s *corev1.Secret) { delete(s.Data, "token") }, robot, fill},
		"without a namespace":        {func(s *corev1.Secret) { delete(s.Data, "namespace") }, robot, fill},
		"another authority":          {func(s *corev1.Secret) { s.Data["ca.crt"] = []byte("old") }, robot, fill},
		"immutable":                  {func(s *corev1.Secret) { s.Data, s.Immutable = nil, new(true) }, robot, keep},
		"no account":                 {nil, nil, remove},
		"immutable, no account":      {func(s *corev1.Secret) { s.Immutable = new(true) }, nil, remove},
		"being deleted":              {func(s *corev1.Secret) { s.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0))); s.Data = nil }, robot, keep},
		"being deleted, no account":  {func(s *corev1.Secret) { s.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0))) }, nil, keep},
		"what others put in it only": {func(s *corev1.Secret) { s.Data = map[string][]byte{"mine": []byte("x")} }, robot, fill},
	} {
		if got := decide(secret(test.change), test.account, []byte("ca")); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func TestTokenSecretBelongsByNameAndUID(t *testing.T) {
	robot := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "robot", UID: "1"}}
	for name, test := range map[string]struct {
		change func(*corev1.Secret)
		want   bool
	}{
		"by its name":       {nil, true},
		"by its UID":        {func(s *corev1.Secret) { s.Annotations[corev1.ServiceAccountUIDKey] = "1" }, true},
		"another UID":       {func(s *corev1.Secret) { s.Annotations[corev1.ServiceAccountUIDKey] = "2" }, false},
		"another name":      {func(s *corev1.Secret) { s.Annotations[corev1.ServiceAccountNameKey] = "human" }, false},
		"another namespace": {func(s *corev1.Secret) { s.Namespace = "other" }, false},
	} {
		if got := belongs(secret(test.change), robot); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestFilledKeepsTheRest(t *testing.T) {
	s := secret(func(s *corev1.Secret) { s.Data = map[string][]byte{"mine": []byte("x"), "ca.crt": []byte("old")} })
	data, err := filled(s, []byte("ca"), func() (string, error) { return "signed", nil })
	if err != nil || string(data["mine"]) != "x" || string(data["ca.crt"]) != "ca" || string(data["namespace"]) != "ns" || string(data["token"]) != "signed" {
		t.Errorf("%q %v", data, err)
	}
	if len(s.Data) != 2 {
		t.Error("the object in the cache has changed")
	}
	if _, err := filled(secret(nil), []byte("ca"), func() (string, error) { return "", errors.New("no key") }); err != nil {
		t.Errorf("a token that is there is signed again: %v", err)
	}
}
