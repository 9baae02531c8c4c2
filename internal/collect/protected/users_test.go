package protected

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// TestR28_WhatCannotBeLookedUpIsInUse: an object whose users cannot be listed counts as used.
func TestR28_WhatCannotBeLookedUpIsInUse(t *testing.T) {
	user := &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "user"}, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "other"}, {Name: "used"}},
	}
	elsewhere := user.DeepCopy()
	elsewhere.Namespace = "billing"
	for name, test := range map[string]struct {
		objects []runtime.Object
		fails   error
		want    string // of the first of those that remain
	}{
		"nothing":                        {want: ""},
		"in another namespace":           {objects: []runtime.Object{elsewhere}, want: ""},
		"used":                           {objects: []runtime.Object{user}, want: "ServiceAccount shop/user imagePullSecrets[1].name"},
		"no answer":                      {fails: errors.New("connection refused"), want: "objects of the kind ServiceAccount  connection refused"},
		"an answer that names an object": {fails: apierrors.NewInternalError(errors.New("serviceaccounts \"hidden\" cannot be decoded")), want: "objects of the kind ServiceAccount  they cannot be listed: InternalError"},
		"an answer without a reason":     {fails: &apierrors.StatusError{ErrStatus: metav1.Status{Message: "serviceaccounts \"hidden\" cannot be decoded", Code: 500}}, want: "objects of the kind ServiceAccount  they cannot be listed: the server gives no reason"},
		"no right":                       {fails: apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "", nil), want: "objects of the kind ServiceAccount  serviceaccounts is forbidden: <nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			client := dynamicfake.NewSimpleDynamicClient(clientgoscheme.Scheme, test.objects...)
			client.PrependReactor("list", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) { return test.fails != nil, nil, test.fails })
			mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
			mapper.Add(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), meta.RESTScopeNamespace) // the only kind that is served
			of := inuse.Object{Kind: schema.GroupKind{Kind: "Secret"}, Namespace: "shop", Name: "used"}
			got := ""
			for _, r := range (Lookup{Mapper: mapper, Objects: client}).Remaining(t.Context(), nil, of, protection.New("unused", "")) {
				got += r.String() + " " + r.Field
				if r.Unknown != "" {
					got += " " + r.Unknown
				}
			}
			if got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
