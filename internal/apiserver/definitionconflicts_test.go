package apiserver

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	"k8s.io/apiextensions-apiserver/pkg/controller/finalizer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// Only a conflict about the status of a definition becomes another error.
func TestRetryStatusConflicts(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code := http.StatusConflict
		if strings.Contains(r.URL.Path, "absent") {
			code = http.StatusNotFound
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"`+map[int]string{409: "Conflict", 404: "NotFound"}[code]+`"}`)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL, QPS: -1}
	config.Wrap(retryStatusConflicts)
	client, err := clientset.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	named := func(name string) *apiextensionsv1.CustomResourceDefinition {
		return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	if _, err := definitions.UpdateStatus(t.Context(), named("widgets.example.com"), metav1.UpdateOptions{}); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), errStaleStatus.Error()) {
		t.Errorf("status: %v", err)
	}
	if _, err := definitions.Update(t.Context(), named("widgets.example.com"), metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("definition: %v", err)
	}
	if _, err := definitions.UpdateStatus(t.Context(), named("absent.example.com"), metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("status of an absent definition: %v", err)
	}
}

// retryStatusConflicts exists because the finalizing controller of apiextensions-apiserver does not retry
// after a conflict, and works because the controller retries after an internal error. If it is called more
// than once after a conflict, it retries by itself: then remove retryStatusConflicts.
func TestDefinitionFinalizerIgnoresConflicts(t *testing.T) {
	const conflicting, failing, retries = "a.example.com", "b.example.com", 6
	errs := map[string]error{
		conflicting: apierrors.NewConflict(apiextensionsv1.Resource("customresourcedefinitions"), conflicting, errors.New("stale")),
		failing:     apierrors.NewInternalError(errStaleStatus),
	}
	calls := map[string]*atomic.Int64{conflicting: {}, failing: {}}
	var definitions []runtime.Object
	for name := range errs {
		definitions = append(definitions, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
			Name: name, DeletionTimestamp: new(metav1.Now()), Finalizers: []string{apiextensionsv1.CustomResourceCleanupFinalizer},
		}})
	}
	client := fake.NewClientset(definitions...)
	client.PrependReactor("update", "customresourcedefinitions", func(action clienttesting.Action) (bool, runtime.Object, error) {
		crd := action.(clienttesting.UpdateAction).GetObject().(*apiextensionsv1.CustomResourceDefinition)
		calls[crd.Name].Add(1)
		return true, nil, errs[crd.Name]
	})
	informers := externalversions.NewSharedInformerFactory(client, 0)
	controller := finalizer.NewCRDFinalizer(informers.Apiextensions().V1().CustomResourceDefinitions(), client.ApiextensionsV1(), nil)
	informers.Start(t.Context().Done())
	go controller.RunWithContext(1, t.Context())
	// Both would be retried with the same back-off: after so many retries of one definition,
	// the other would have been retried, too.
	eventually.Holds(t, "the controller retries after an internal error", func() bool {
		return calls[failing].Load() > retries && calls[conflicting].Load() > 0
	})
	if n := calls[conflicting].Load(); n != 1 {
		t.Errorf("after a conflict, the status was written %d times", n)
	}
}
