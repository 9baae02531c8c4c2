package conformance

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/protected"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// TestR32_OnAnyServer: on a server without limits, the webhook of deploy refuses large deletions that nobody has confirmed.
func TestR32_OnAnyServer(t *testing.T) {
	s, err := sharedServer(checked)
	if err != nil {
		t.Fatal(err)
	}
	c := &confirming{protecting{server: s, namespace: "confirming"}}
	if _, err := s.Kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.install(t)
	const collector, absent = "system:serviceaccount:kube-system:generic-garbage-collector", types.UID("11111111-2222-3333-4444-555555555555")
	admin := c.as(t, "")

	tree := c.tree(t, admin, "tree", 6)
	c.refused(t, "an owner", c.remove(t, admin, "tree", metav1.DeleteOptions{}))
	c.refused(t, "an owner, in the foreground", c.remove(t, admin, "tree", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}))
	c.refused(t, "a collection", admin.CoreV1().ConfigMaps(c.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "tree=tree"}))
	if err := c.remove(t, admin, "tree", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan), DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("a deletion that orphans: %v", err)
	}
	if err := c.remove(t, admin, "tree-0", metav1.DeleteOptions{}); err != nil {
		t.Errorf("a dependent: %v", err)
	}

	adopted := c.tree(t, admin, "adopted", 6)
	c.patch(t, admin, "adopted", map[string]any{"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": absent}}})
	eventually.Succeeds(t, func() error { // until the webhook has observed the change
		return c.asksToConfirm(c.remove(t, c.as(t, collector), "adopted", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
	})

	c.testEviction(t, admin)
	c.testConfirmation(t, tree)
	if got := c.left(t, "adopted"); got != len(adopted) {
		t.Errorf("%d of the %d objects are left whose owner does not exist", got, len(adopted))
	}
}

// testConfirmation confirms the deletion of a tree, by a user without the right, and with it.
func (c *confirming) testConfirmation(t *testing.T, tree []string) {
	t.Helper()
	closure, unconfirmed := protection.NeedsConfirmation(c.remove(t, c.as(t, ""), "tree", metav1.DeleteOptions{}))
	if !unconfirmed || closure.Objects != len(tree)-1 {
		t.Fatalf("%+v, want %d objects", closure, len(tree)-1)
	}
	root, err := c.Kube.CoreV1().ConfigMaps(c.namespace).Get(t.Context(), "tree", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	confirmation := protection.Confirmation{UID: root.UID, Digest: closure.Digest, At: time.Now()}
	annotated := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, protection.Confirmed, confirmation)
	user := c.limited(t)
	eventually.Succeeds(t, func() error {
		_, err := user.CoreV1().ConfigMaps(c.namespace).Patch(t.Context(), "tree", types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
		return err
	})
	if _, err := user.CoreV1().ConfigMaps(c.namespace).Patch(t.Context(), "tree", types.MergePatchType, []byte(annotated), metav1.PatchOptions{}); err == nil {
		t.Error("a user without the right has confirmed a deletion")
	}
	if _, err := c.Kube.CoreV1().ConfigMaps(c.namespace).Patch(t.Context(), "tree", types.MergePatchType, []byte(annotated), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.remove(t, user, "tree", metav1.DeleteOptions{}); err != nil {
		t.Errorf("the confirmed deletion: %v", err)
	}
	eventually.Succeeds(t, func() error { // a cascade needs no further confirmation
		if n := c.left(t, "tree"); n > 0 {
			return fmt.Errorf("%d objects are left of what was confirmed", n)
		}
		return nil
	})
}

// testEviction evicts a pod with many dependents: servers ask no webhook about the deletion that follows.
func (c *confirming) testEviction(t *testing.T, admin kubernetes.Interface) {
	t.Helper()
	var pod *corev1.Pod
	eventually.Succeeds(t, func() (err error) { // its service account is created by a controller
		pod, err = c.Kube.CoreV1().Pods(c.namespace).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "evicted"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}, AutomountServiceAccountToken: new(bool)},
		}, metav1.CreateOptions{})
		return err
	})
	for n := range 6 {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("of-the-pod-", n), OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		}}
		if _, err := c.Kube.CoreV1().ConfigMaps(c.namespace).Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	evict := func(options *metav1.DeleteOptions) error {
		return admin.PolicyV1().Evictions(c.namespace).Evict(t.Context(), &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: c.namespace}, DeleteOptions: options,
		})
	}
	eventually.Succeeds(t, func() error { // until the webhook has observed the dependents
		return c.asksToConfirm(evict(&metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
	})
	c.refused(t, "an eviction", evict(nil))
}

type confirming struct{ protecting }

// install serves the webhook, and installs its configuration for the namespace of the test.
func (c *confirming) install(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	limits := protection.Limits{MoreThan: 5}
	handler, observe, err := protected.NewConfirmHandler(ctx, c.asCollector(), limits, "kube-system", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	observed := make(chan struct{})
	go func() {
		defer close(observed)
		_ = observe(ctx)
	}()
	served := httptest.NewTLSServer(handler)
	t.Cleanup(func() {
		served.Close()
		stop()
		<-observed
	})
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: served.Certificate().Raw})
	c.apply(t, "confirm-webhook/webhook.yaml", func(o *unstructured.Unstructured) bool {
		if o.GetKind() != "ValidatingWebhookConfiguration" {
			return false
		}
		webhooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
		for _, w := range webhooks {
			w.(map[string]any)["clientConfig"] = map[string]any{"url": served.URL + protected.ConfirmPath, "caBundle": base64.StdEncoding.EncodeToString(authority)}
			w.(map[string]any)["namespaceSelector"] = map[string]any{"matchLabels": map[string]any{corev1.LabelMetadataName: c.namespace}}
		}
		return unstructured.SetNestedSlice(o.Object, webhooks, "webhooks") == nil
	})
	c.tree(t, c.as(t, ""), "first", 6)
	eventually.Succeeds(t, func() error {
		return c.asksToConfirm(c.remove(t, c.as(t, ""), "first", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
	})
}

// tree creates a ConfigMap with dependents, and waits until the webhook counts them.
func (c *confirming) tree(t *testing.T, client kubernetes.Interface, name string, dependents int) []string {
	t.Helper()
	maps, labels := client.CoreV1().ConfigMaps(c.namespace), map[string]string{"tree": name}
	root, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := []string{name}
	for i := range dependents {
		part := metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i), Labels: labels, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: root.UID},
		}}
		if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: part}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		all = append(all, part.Name)
	}
	if name == "first" {
		return all // there is no webhook yet that counts them
	}
	eventually.Succeeds(t, func() error {
		return c.asksToConfirm(c.remove(t, client, name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
	})
	return all
}

func (c *confirming) remove(t *testing.T, client kubernetes.Interface, name string, options metav1.DeleteOptions) error {
	t.Helper()
	return client.CoreV1().ConfigMaps(c.namespace).Delete(t.Context(), name, options)
}

func (c *confirming) asksToConfirm(err error) error {
	if _, unconfirmed := protection.NeedsConfirmation(err); unconfirmed {
		return nil
	}
	return fmt.Errorf("the deletion is not refused for want of a confirmation: %w", err)
}

func (c *confirming) refused(t *testing.T, what string, err error) {
	t.Helper()
	if err := c.asksToConfirm(err); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// left returns the number of objects of a tree.
func (c *confirming) left(t *testing.T, name string) int {
	t.Helper()
	list, err := c.Kube.CoreV1().ConfigMaps(c.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "tree=" + name})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

func (c *confirming) patch(t *testing.T, client kubernetes.Interface, name string, metadata map[string]any) {
	t.Helper()
	patch, err := (&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}}).MarshalJSON()
	if err == nil {
		_, err = client.CoreV1().ConfigMaps(c.namespace).Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// limited returns a client of a user who may change and delete ConfigMaps, and not confirm.
func (c *confirming) limited(t *testing.T) kubernetes.Interface {
	t.Helper()
	const name = "without-confirm"
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "delete", "patch"}}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
	}
	_, err := c.Kube.RbacV1().Roles(c.namespace).Create(t.Context(), role, metav1.CreateOptions{})
	if _, bound := c.Kube.RbacV1().RoleBindings(c.namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil || bound != nil {
		t.Fatal(err, bound)
	}
	config := rest.CopyConfig(c.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: name}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
