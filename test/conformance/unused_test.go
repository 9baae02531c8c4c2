package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// newProtecting returns a namespace on a server with admission.
func newProtecting(t *testing.T, namespace string) *protecting {
	t.Helper()
	s, err := sharedServer(checked)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return &protecting{server: s, namespace: namespace}
}

// TestR28_DefaultsOnAnyServer: with the webhook of deploy, definitions stay while they have instances, without a label.
func TestR28_DefaultsOnAnyServer(t *testing.T) {
	p := newProtecting(t, "defaults")
	text, err := os.ReadFile(filepath.Join(root, "deploy", "kustomize", "protect-defaults", "defaults.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var patch []struct {
		Value map[string]any `json:"value"`
	}
	if err := yaml.Unmarshal(text, &patch); err != nil || len(patch) != 1 {
		t.Fatal(err, len(patch))
	}
	p.applyWebhook(t, patch[0].Value)
	definitions := p.Dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.defaults.example.com}, spec: {group: defaults.example.com, scope: Namespaced,
		names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`), &definition.Object); err != nil {
		t.Fatal(err)
	}
	if _, err := definitions.Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	widgets := p.Dynamic.Resource(schema.GroupVersionResource{Group: "defaults.example.com", Version: "v1", Resource: "widgets"}).Namespace(p.namespace)
	eventually.Succeeds(t, func() error { // the definition is established in a moment
		_, err := widgets.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{"apiVersion": "defaults.example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "first"}}}, metav1.CreateOptions{})
		return err
	})
	remove := func(options metav1.DeleteOptions) error {
		return definitions.Delete(t.Context(), definition.GetName(), options)
	}
	eventually.Agrees(t, func() string { // webhooks take effect after a while
		err := remove(metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		const want = "protected by default, as if it had the label coppice.dev/protect=unused: it is in use by Widget.defaults.example.com defaults/first"
		if _, refused := protection.Refused(err); !refused || !strings.Contains(err.Error(), want) {
			return fmt.Sprintf("%v, want %s", err, want)
		}
		return ""
	})
	lift := []byte(`{"metadata":{"labels":{"coppice.dev/protect":"none"}}}`)
	if _, err := definitions.Patch(t.Context(), definition.GetName(), types.MergePatchType, lift, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := remove(metav1.DeleteOptions{}); err != nil {
		t.Errorf("lifted: %v", err)
	}
}

// TestRacesOfTheWebhook measures how many deletions the webhook overlooks a user in. It is no check: nothing prevents these
// on other servers than ours.
func TestRacesOfTheWebhook(t *testing.T) {
	races, err := strconv.Atoi(os.Getenv("COPPICE_TEST_RACES"))
	if err != nil || os.Getenv(kubeconfigVariable) == "" {
		t.Skip("make races-webhook runs it on a real kube-apiserver")
	}
	p := newProtecting(t, "races")
	p.applyWebhook(t)
	p.awaitEffect(t, webhookRefuses)
	counts := map[string]int{}
	for n := range races {
		counts[p.race(t, n)]++
	}
	t.Logf("%d races of a creation with a deletion: %v", races, counts)
}

// mostRequests bounds the requests by which a creation is late.
const mostRequests = 32

// race deletes a Secret in mode unused while a ServiceAccount that names it is created, and returns the outcome. Requests
// before the creation shift it against the deletion.
func (p *protecting) race(t *testing.T, n int) string {
	t.Helper()
	name := fmt.Sprintf("race-%d", n)
	secrets, accounts := p.Kube.CoreV1().Secrets(p.namespace), p.Kube.CoreV1().ServiceAccounts(p.namespace)
	secret, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{protection.Label: "unused"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	var user *corev1.ServiceAccount
	var failed, deleted error
	both.Go(func() {
		for range n % mostRequests {
			if _, err := secrets.Get(t.Context(), name, metav1.GetOptions{}); err != nil && !apierrors.IsNotFound(err) {
				failed = err
				return
			}
		}
		user, failed = accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}, ImagePullSecrets: []corev1.LocalObjectReference{{Name: name}}}, metav1.CreateOptions{})
	})
	both.Go(func() { deleted = secrets.Delete(t.Context(), name, metav1.DeleteOptions{}) })
	both.Wait()
	if failed != nil {
		t.Fatal(failed)
	}
	if err := accounts.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if deleted != nil {
		if _, refused := protection.Refused(deleted); !refused {
			t.Error(deleted)
		}
		if err := secrets.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		return "refused"
	}
	order, err := resourceversion.CompareResourceVersion(p.deletionOf(t, secret), user.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	if order > 0 {
		return "overlooked"
	}
	return "deleted first"
}

// deletionOf returns the version at which a Secret was deleted.
func (p *protecting) deletionOf(t *testing.T, secret *corev1.Secret) string {
	t.Helper()
	w, err := p.Kube.CoreV1().Secrets(p.namespace).Watch(t.Context(), metav1.SingleObject(secret.ObjectMeta))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if gone, isSecret := e.Object.(*corev1.Secret); isSecret && e.Type == watch.Deleted {
			return gone.ResourceVersion
		}
	}
	t.Fatal("the deletion was not observed")
	return ""
}
