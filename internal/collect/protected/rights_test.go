package protected

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// installed is when the webhook was installed.
var installed = time.Unix(1_000_000, 0)

func installedAt(when time.Time) func(context.Context) protection.Checker {
	return func(context.Context) protection.Checker { return protection.Checker{UID: "c", Since: when} }
}

// rightsHandler is a webhook of a cluster that has a Secret, or has not; reader may read it.
func rightsHandler(t *testing.T, reader string, exists bool) Webhook {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	objects := metadatafake.NewSimpleMetadataClient(scheme)
	if exists {
		objects = metadatafake.NewSimpleMetadataClient(scheme, &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: "key"},
		})
	}
	client := kubernetesfake.NewClientset()
	client.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		want := authorizationv1.SubjectAccessReviewSpec{
			User: reader, Groups: []string{"team"}, UID: "1", Extra: map[string]authorizationv1.ExtraValue{"scope": {"a"}},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "secrets", Namespace: "vault", Name: "key"},
		}
		review.Status.Allowed = cmp.Equal(want, review.Spec)
		return true, review, nil
	})
	return Webhook{
		Outlived: Lookup{Mapper: mapper, Metadata: objects}, Reviews: client.AuthorizationV1().SubjectAccessReviews(),
		Checker: installedAt(installed), Now: func() time.Time { return installed.Add(time.Hour) },
	}
}

// R28: the webhook's answers about an entry depend on the existence of its object only for users who may read it.
func TestR28_WebhookAnswersDependOnNothingUnreadable(t *testing.T) {
	list, err := protection.FormatOutlives([]protection.Outlived{{APIVersion: "v1", Kind: "Secret", Namespace: "vault", Name: "key"}})
	if err != nil {
		t.Fatal(err)
	}
	object := func(label, annotation string) runtime.RawExtension {
		raw, err := json.Marshal(metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "kept", CreationTimestamp: metav1.NewTime(installed.Add(time.Hour)), Labels: map[string]string{protection.Label: label}, Annotations: map[string]string{protection.Annotation: annotation},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: raw}
	}
	kept, always := object("outlives", list), object("always", list)
	const gone, there, never = "if it is gone", "if it is there", "never"
	for name, test := range map[string]struct {
		request       admissionv1.AdmissionRequest
		reader, other string // when the request is allowed, for who may read the Secret and for others
	}{
		"delete":                  {admissionv1.AdmissionRequest{Operation: admissionv1.Delete, OldObject: kept}, gone, never},
		"create":                  {admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: kept}, gone + there, never},
		"add by an update":        {admissionv1.AdmissionRequest{Operation: admissionv1.Update, Object: kept, OldObject: object("outlives", "[]")}, gone + there, never},
		"have it looked up":       {admissionv1.AdmissionRequest{Operation: admissionv1.Update, Object: kept, OldObject: always}, gone + there, never},
		"add it in a subresource": {admissionv1.AdmissionRequest{Operation: admissionv1.Update, SubResource: "status", Object: kept, OldObject: always}, gone + there, never},
		"change something else":   {admissionv1.AdmissionRequest{Operation: admissionv1.Update, Object: kept, OldObject: kept}, gone + there, gone + there},
		"list it without lookups": {admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: always}, gone + there, gone + there},
		"take the entry away":     {admissionv1.AdmissionRequest{Operation: admissionv1.Update, Object: object("always", ""), OldObject: kept}, gone + there, gone + there},
	} {
		for user, want := range map[string]string{"ann": test.reader, "joe": test.other, "system:serviceaccount:kube-system:replicaset-controller": test.other} {
			allowed, messages := "", map[string]bool{}
			for when, exists := range map[string]bool{gone: false, there: true} {
				test.request.UID, test.request.UserInfo = "1", authenticationv1.UserInfo{
					Username: user, Groups: []string{"team"}, UID: "1", Extra: map[string]authenticationv1.ExtraValue{"scope": {"a"}},
				}
				body, err := json.Marshal(admissionv1.AdmissionReview{
					TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &test.request,
				})
				if err != nil {
					t.Fatal(err)
				}
				_, review := post(t, rightsHandler(t, "ann", exists), string(body))
				if review.Response == nil {
					t.Fatalf("%s, user %s: no response", name, user)
				}
				if review.Response.Allowed {
					allowed += when
					continue
				}
				messages[review.Response.Result.Message] = true
			}
			if allowed == there+gone {
				allowed = gone + there
			}
			if allowed == "" {
				allowed = never
			}
			if allowed != want || len(messages) > 1 {
				t.Errorf("%s, user %s: it is allowed %s, want %s; the refusals say %v", name, user, allowed, want, messages)
			}
		}
	}
}

// R28: a node learns nothing, even if a server reports the rights of the role of nodes.
func TestR28_WebhookTellsNodesNothing(t *testing.T) {
	const node = "system:node:na"
	for _, reader := range []string{node, "ann"} { // whom the server reports to have the right
		h := rightsHandler(t, reader, false)
		request := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"DELETE","userInfo":{"username":"` + node + `","groups":["team"],"uid":"1","extra":{"scope":["a"]}},
			"oldObject":{"metadata":{"namespace":"shop","labels":{"coppice.dev/protect":"outlives"},"annotations":{"coppice.dev/outlives":"[{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"namespace\":\"vault\",\"name\":\"key\"}]"}}}}}`
		if _, review := post(t, h, request); review.Response == nil || review.Response.Allowed {
			t.Errorf("%s may read the Secret: %+v", reader, review.Response)
		}
	}
}

// Controllers that copy templates add no entries, even if they could read the objects.
func TestR28_WebhookTrustsNoTemplate(t *testing.T) {
	const copier = "system:serviceaccount:kube-system:statefulset-controller"
	h := rightsHandler(t, copier, true)
	request := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE","userInfo":{"username":"` + copier + `","groups":["team"],"uid":"1","extra":{"scope":["a"]}},
		"object":{"metadata":{"namespace":"shop","labels":{"coppice.dev/protect":"outlives"},"annotations":{"coppice.dev/outlives":"[{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"namespace\":\"vault\",\"name\":\"key\"}]"}}}}}`
	if _, review := post(t, h, request); review.Response == nil || review.Response.Allowed {
		t.Errorf("%+v", review.Response)
	}
}
