package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// TestR28_OnAnyServer: on a server that does not implement the rule, the manifests of deploy keep
// protected objects: first the policy, then the webhook. On our own server they refuse the same
// deletions as the server; the policy also refuses to delete objects that outlive others that are gone.
func TestR28_OnAnyServer(t *testing.T) {
	s, err := sharedServer(checked)
	if err != nil {
		t.Fatal(err)
	}
	p := &protecting{server: s, namespace: "protecting"}
	if _, err := s.Kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Run("policy", func(t *testing.T) {
		p.apply(t, "protect/policy.yaml", nil)
		p.test(t, policyRefuses)
	})
	p.awaitEffect(t, nobodyRefuses) // a deleted policy loses its effect after a while
	t.Run("webhook", func(t *testing.T) {
		old, other := p.create(t, "outlives") // which nobody has checked
		p.applyWebhook(t)
		configuration, err := p.Kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), protection.Enforcer, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p.checkedBy = string(configuration.UID)
		p.test(t, webhookRefuses)
		p.testEviction(t)
		p.testBinding(t)
		p.testEntries(t)
		p.testUnchecked(t, old, other)
		if os.Getenv(kubeconfigVariable) != "" {
			name, _ := p.create(t, "cascading")
			const collector = "system:serviceaccount:elsewhere:gc"
			p.check(t, collector, "cascading", name, true, p.as(t, collector).CoreV1().ConfigMaps(p.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
		}
	})
}

// applyWebhook serves the webhook, and creates its configuration, with further webhooks, for the time of the test.
func (p *protecting) applyWebhook(t *testing.T, more ...any) {
	t.Helper()
	handler, err := coppice.Controllers{}.ProtectionHandler(t.Context(), p.asCollector())
	if err != nil {
		t.Fatal(err)
	}
	served := httptest.NewTLSServer(handler)
	t.Cleanup(served.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: served.Certificate().Raw})
	p.apply(t, "protect-webhook/webhook.yaml", func(o *unstructured.Unstructured) bool {
		switch o.GetKind() {
		case "ValidatingWebhookConfiguration":
		case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			return true
		default:
			return false
		}
		webhooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
		webhooks = append(webhooks, more...)
		for _, w := range webhooks {
			path, _, _ := unstructured.NestedString(w.(map[string]any), "clientConfig", "service", "path")
			w.(map[string]any)["clientConfig"] = map[string]any{"url": served.URL + path, "caBundle": base64.StdEncoding.EncodeToString(authority)}
		}
		return unstructured.SetNestedSlice(o.Object, webhooks, "webhooks") == nil
	})
}

// asCollector is the configuration of a collector that none of the known users is.
func (p *protecting) asCollector() *rest.Config {
	config := rest.CopyConfig(p.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:elsewhere:gc", Groups: []string{"system:masters"}}
	return config
}

type protecting struct {
	*server

	namespace string
	n         int
	checkedBy string // the UID of the configuration of the webhook, as soon as there is one
}

// apply creates the objects of a manifest for the time of the test; change adapts them, or leaves one out.
func (p *protecting) apply(t *testing.T, manifest string, change func(*unstructured.Unstructured) bool) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy", "kustomize", manifest))
	if err != nil {
		t.Fatal(err)
	}
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			t.Fatal(err)
		}
		if change != nil && !change(o) {
			continue
		}
		resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
		objects := p.Dynamic.Resource(resource)
		if _, err := objects.Create(t.Context(), o, metav1.CreateOptions{FieldValidation: "Strict"}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := objects.Delete(context.WithoutCancel(t.Context()), o.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// as returns a client of a user with all rights.
func (p *protecting) as(t *testing.T, user string) kubernetes.Interface {
	t.Helper()
	config := rest.CopyConfig(p.Config)
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// create makes a protected ConfigMap that outlives another one.
func (p *protecting) create(t *testing.T, mode string) (name, other string) {
	t.Helper()
	p.n++
	name, other = fmt.Sprintf("kept-%d", p.n), fmt.Sprintf("other-%d", p.n)
	list, err := protection.FormatOutlives([]protection.Outlived{{APIVersion: "v1", Kind: "ConfigMap", Name: other}})
	if err != nil {
		t.Fatal(err)
	}
	annotations := map[string]string{protection.Annotation: list}
	if p.checkedBy != "" { // for the first minute it does not believe that it has checked what is newer
		annotations[protection.Checked] = p.checkedBy
	}
	for _, o := range []metav1.ObjectMeta{
		{Name: other},
		{Name: name, Labels: map[string]string{protection.Label: mode, "n": fmt.Sprint(p.n)}, Annotations: annotations},
	} {
		if _, err := p.Kube.CoreV1().ConfigMaps(p.namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: o}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return name, other
}

// The part that refuses a deletion on a server that does not implement the rule.
const (
	nobodyRefuses  = ""
	policyRefuses  = "policy"
	webhookRefuses = "webhook"
)

// test deletes protected objects as those do who delete.
func (p *protecting) test(t *testing.T, by string) {
	p.awaitEffect(t, by) // policies and webhooks take effect after a while
	for user, cascades := range map[string]bool{
		"": false, "ann": false,
		"system:serviceaccount:kube-system:generic-garbage-collector": true, "system:serviceaccount:kube-system:namespace-controller": true,
		"system:kube-controller-manager": true, "system:serviceaccount:coppice-system:coppice": true,
	} {
		client := p.as(t, user).CoreV1().ConfigMaps(p.namespace)
		for mode, refused := range map[string]bool{"always": true, "cascading": cascades, "outlives": true, "sometimes": true} {
			name, other := p.create(t, mode)
			p.check(t, user, mode, name, refused, client.Delete(t.Context(), name, metav1.DeleteOptions{}))
			if !refused {
				continue
			}
			p.check(t, user, mode, name, true, client.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
			p.check(t, user, mode, name, true, client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: fmt.Sprintf("n=%d", p.n)}))
			if mode == "outlives" {
				if err := client.Delete(t.Context(), other, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				looksUp := by == webhookRefuses
				p.check(t, user, "outlives what is gone", name, !looksUp, client.Delete(t.Context(), name, metav1.DeleteOptions{}))
			}
		}
	}
}

// awaitEffect waits until a policy or webhook has taken effect, and the previous one has none. On our
// own server this is only visible for deletions that the server itself allows.
func (p *protecting) awaitEffect(t *testing.T, of string) {
	t.Helper()
	mode, want := "always", of != nobodyRefuses
	if os.Getenv(kubeconfigVariable) == "" {
		mode, want = "outlives", of == policyRefuses
	}
	name, other := p.create(t, mode)
	objects := p.Kube.CoreV1().ConfigMaps(p.namespace)
	if err := objects.Delete(t.Context(), other, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, func() error {
		err := objects.Delete(t.Context(), name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if _, refused := protection.Refused(err); refused != want {
			return fmt.Errorf("the deletion of an object that is protected with %s is refused: %t, want %t: %w", mode, refused, want, err)
		}
		return nil
	})
}

func (p *protecting) check(t *testing.T, user, mode, name string, want bool, err error) {
	t.Helper()
	message, refused := protection.Refused(err)
	if refused != want || !want && err != nil {
		t.Errorf("user %q, mode %s: refused %t, want %t: %v", user, mode, refused, want, err)
	}
	if command := "coppice unprotect configmaps/" + name + " -n " + p.namespace; refused && !strings.Contains(message, command) {
		t.Errorf("user %q, mode %s: %q does not say %q", user, mode, message, command)
	}
	_, err = p.Kube.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) == want {
		t.Errorf("user %q, mode %s: a hole: %v", user, mode, err)
	}
}

// testEntries: a user without rights tries to find out whether a ConfigMap exists, with an object that outlives
// it.
func (p *protecting) testEntries(t *testing.T) {
	config := rest.CopyConfig(p.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "asker"}
	asker, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	rbac := p.Kube.RbacV1()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "asker"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "delete", "patch"}}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "asker"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "asker"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "asker"}},
	}
	_, err = rbac.Roles(p.namespace).Create(t.Context(), role, metav1.CreateOptions{})
	if _, bound := rbac.RoleBindings(p.namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil || bound != nil {
		t.Fatal(err, bound)
	}
	maps, dryRun := asker.CoreV1().ConfigMaps(p.namespace), []string{metav1.DryRunAll}
	eventually.Succeeds(t, func() error {
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}, metav1.CreateOptions{DryRun: dryRun})
		return err
	})
	kept, other := p.create(t, "outlives")
	ask := func() (answers []string) {
		m, err := p.Kube.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), kept, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		metadata := metav1.ObjectMeta{Name: "asking", Labels: m.Labels, Annotations: m.Annotations}
		_, created := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metadata}, metav1.CreateOptions{DryRun: dryRun})
		for _, err := range []error{created, maps.Delete(t.Context(), kept, metav1.DeleteOptions{DryRun: dryRun})} {
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), protection.Annotation) {
				t.Errorf("somebody who may not read what an object outlives gets the answer %v", err)
			}
			answers = append(answers, fmt.Sprint(err))
		}
		return answers
	}
	before := ask()
	if err := p.Kube.CoreV1().ConfigMaps(p.namespace).Delete(t.Context(), other, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, ask()); diff != "" {
		t.Errorf("the answers tell whether an object exists that the user may not read (-exists +is gone):\n%s", diff)
	}
}

// testUnchecked has cascades delete an object that is older than the webhook: they do not tell whether it outlives
// anything, before somebody who may read that has it checked.
func (p *protecting) testUnchecked(t *testing.T, old, other string) {
	const collector = "system:serviceaccount:kube-system:generic-garbage-collector"
	maps := p.Kube.CoreV1().ConfigMaps(p.namespace)
	refusal := func() string {
		err := p.as(t, collector).CoreV1().ConfigMaps(p.namespace).Delete(t.Context(), old, metav1.DeleteOptions{})
		if _, refused := protection.Refused(err); !refused {
			t.Errorf("a cascade looks up what nobody has checked: %v", err)
		}
		return fmt.Sprint(err)
	}
	before := refusal()
	if err := maps.Delete(t.Context(), other, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	after := refusal()
	for _, want := range []string{"older than the webhook", "coppice protect --mode=outlives configmaps/" + old, "coppice unprotect configmaps/" + old} {
		if !strings.Contains(after, want) {
			t.Errorf("the refusal %q does not say %q", after, want)
		}
	}
	if os.Getenv(kubeconfigVariable) != "" && before != after { // our own server has checked it, and refuses first
		t.Errorf("the refusals tell whether an object exists (-exists +is gone):\n%s", cmp.Diff(before, after))
	}
	config := rest.CopyConfig(p.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "asker"} // who may patch ConfigMaps, and not read them
	asker, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, protection.Checked, p.checkedBy)
	if _, err := asker.CoreV1().ConfigMaps(p.namespace).Patch(t.Context(), old, types.MergePatchType, patch, metav1.PatchOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), protection.Annotation) {
		t.Errorf("somebody who may not read what an object outlives says that it is checked: %v", err)
	}
	if _, err := maps.Patch(t.Context(), old, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	p.check(t, collector, "outlives what is gone, checked", old, false, p.as(t, collector).CoreV1().ConfigMaps(p.namespace).Delete(t.Context(), old, metav1.DeleteOptions{}))
}

// testEviction evicts pods: an eviction is no DELETE, and has no labels.
func (p *protecting) testEviction(t *testing.T) {
	for name, label := range map[string]string{"protected": "always", "unprotected": ""} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: "none", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		if label != "" {
			pod.Labels = map[string]string{protection.Label: label}
		}
		eventually.Succeeds(t, func() error {
			pod.Spec.AutomountServiceAccountToken = new(false)
			_, err := p.Kube.CoreV1().Pods(p.namespace).Create(t.Context(), pod, metav1.CreateOptions{})
			return err
		})
		err := p.Kube.PolicyV1().Evictions(p.namespace).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: p.namespace}})
		if _, refused := protection.Refused(err); refused != (label != "") {
			t.Errorf("the eviction of a pod that is %s: %v", name, err)
		}
	}
}

// testBinding binds pods: the API server copies the annotations of a Binding onto the pod, without the labels of the
// pod in the request.
func (p *protecting) testBinding(t *testing.T) {
	list, err := protection.FormatOutlives([]protection.Outlived{{APIVersion: "v1", Kind: "ConfigMap", Name: "unread"}})
	if err != nil {
		t.Fatal(err)
	}
	for n, annotations := range []map[string]string{
		{protection.Annotation: list},
		{"a": "b", protection.Checked: p.checkedBy},
		{"a": "b"},
	} {
		name := fmt.Sprintf("bound-%d", n)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		pod.Labels, pod.Spec.AutomountServiceAccountToken = map[string]string{protection.Label: string(protection.Outlives)}, new(false)
		eventually.Succeeds(t, func() error {
			_, err := p.Kube.CoreV1().Pods(p.namespace).Create(t.Context(), pod, metav1.CreateOptions{})
			return err
		})
		binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Target: corev1.ObjectReference{Kind: "Node", Name: "none"}}
		allowed := n == 2
		eventually.Succeeds(t, func() error { // policies take effect after a while
			err := p.Kube.CoreV1().Pods(p.namespace).Bind(t.Context(), binding, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if refused := apierrors.IsForbidden(err) && strings.Contains(err.Error(), "annotations of coppice.dev on its pod"); refused == allowed || allowed && err != nil {
				return fmt.Errorf("a Binding with annotations %v: %w", annotations, err)
			}
			return nil
		})
	}
}
