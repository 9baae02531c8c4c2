package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/collect/auditreason"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// outliving is a namespace in which users protect objects that outlive a Secret of another namespace.
type outliving struct {
	*server

	namespace, vault string
	writer           string            // a ClusterRole for everything in a namespace
	metadata         metav1.ObjectMeta // without a name
}

func newOutliving(t *testing.T) outliving {
	t.Helper()
	o := outliving{server: sharedServer(t)}
	o.namespace, o.vault = o.server.namespace(t), o.server.namespace(t)
	o.writer = unique("writer")
	_, err := typed(t, o.config).RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: o.writer}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"*"}, Verbs: []string{"*"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o.metadata = o.listing(t, protection.Outlived{APIVersion: "v1", Kind: "Secret", Namespace: o.vault, Name: "key"})
	return o
}

// listing returns metadata that list an entry.
func (o outliving) listing(t *testing.T, entry protection.Outlived) metav1.ObjectMeta {
	t.Helper()
	list, err := protection.FormatOutlives([]protection.Outlived{entry})
	if err != nil {
		t.Fatal(err)
	}
	return metav1.ObjectMeta{Labels: map[string]string{protection.Label: "outlives"}, Annotations: map[string]string{protection.Annotation: list}}
}

// answers returns the responses to all requests of a user that the entry could influence.
func (o outliving) answers(t *testing.T, config *rest.Config) map[string]string {
	t.Helper()
	ctx, client, answers := t.Context(), typed(t, config), map[string]string{}
	dryRun := []string{metav1.DryRunAll}
	maps := client.CoreV1().ConfigMaps(o.namespace)
	answers["delete"] = text(maps.Delete(ctx, "kept", metav1.DeleteOptions{DryRun: dryRun}))
	answers["delete in the foreground"] = text(maps.Delete(ctx, "kept", metav1.DeleteOptions{DryRun: dryRun, PropagationPolicy: new(metav1.DeletePropagationForeground)}))
	answers["delete the collection"] = text(maps.DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{LabelSelector: protection.Label}))
	answers["evict"] = text(client.PolicyV1().Evictions(o.namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: "kept", Namespace: o.namespace}, DeleteOptions: &metav1.DeleteOptions{DryRun: dryRun},
	}))
	_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: named(o.metadata, "new")}, metav1.CreateOptions{DryRun: dryRun})
	answers["create"] = text(err)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": o.metadata.Labels, "annotations": o.metadata.Annotations}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = maps.Patch(ctx, "plain", types.MergePatchType, patch, metav1.PatchOptions{DryRun: dryRun})
	answers["patch"] = text(err)
	applied := strings.Replace(string(patch), "{", `{"apiVersion":"v1","kind":"ConfigMap",`, 1)
	applied = strings.Replace(applied, `"metadata":{`, `"metadata":{"name":"applied",`, 1)
	_, err = maps.Patch(ctx, "applied", types.ApplyPatchType, []byte(applied), metav1.PatchOptions{DryRun: dryRun, FieldManager: "test"})
	answers["apply"] = text(err)
	_, err = client.CoreV1().Pods(o.namespace).Patch(ctx, "plain", types.MergePatchType, patch, metav1.PatchOptions{DryRun: dryRun}, "status")
	answers["patch a status"] = text(err)
	_, err = client.CoreV1().ReplicationControllers(o.namespace).Create(ctx, o.template(), metav1.CreateOptions{DryRun: dryRun})
	answers["create a template"] = text(err)
	return answers
}

func named(m metav1.ObjectMeta, name string) metav1.ObjectMeta {
	m = *m.DeepCopy()
	m.Name = name
	return m
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s", apierrors.ReasonForError(err), err)
}

func (o outliving) template() *corev1.ReplicationController {
	pod := podSpec()
	template := named(o.metadata, "")
	template.Labels["app"] = "x"
	return &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "maker"}, Spec: corev1.ReplicationControllerSpec{
		Replicas: new(int32(0)), Selector: map[string]string{"app": "x"}, Template: &corev1.PodTemplateSpec{ObjectMeta: template, Spec: pod},
	}}
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{NodeName: "none", Containers: []corev1.Container{{Name: "c", Image: "i"}}}
}

// prepare creates the objects of the requests, as an administrator.
func (o outliving) prepare(t *testing.T) kubernetes.Interface {
	t.Helper()
	admin := typed(t, o.config)
	for _, m := range []metav1.ObjectMeta{named(o.metadata, "kept"), {Name: "plain"}} {
		if _, err := admin.CoreV1().ConfigMaps(o.namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: m}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.CoreV1().Pods(o.namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: m, Spec: podSpec()}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return admin
}

// R28: a user who may not read an object cannot learn from objects that outlive it whether it exists: the
// responses to all writes and deletions are the same. A user who may read it gets the true response.
func TestR28_AnswersDependOnNothingUnreadable(t *testing.T) {
	o := newOutliving(t)
	admin := o.prepare(t)
	for _, user := range []string{"mallory", "bob", "vic"} {
		o.bind(t, o.namespace, o.writer, user)
	}
	o.bind(t, o.vault, bootstrappolicy.Edit, "bob")
	o.bind(t, o.vault, bootstrappolicy.View, "vic") // without secrets
	marked := o.acting("mallory")
	marked.Wrap(auditreason.MarkCascade)
	users := map[string]*rest.Config{
		"mallory": o.acting("mallory"), "mallory as a cascade": marked, "vic": o.acting("vic"),
		"a node": o.acting("system:node:na", "system:nodes", "system:authenticated"),
	}
	absent := map[string]map[string]string{}
	for name, config := range users {
		absent[name] = o.answers(t, config)
	}
	readable := o.answers(t, o.acting("bob"))
	for request, answer := range readable {
		if answer != "" {
			t.Errorf("bob may read that there is no Secret, but %s is answered with %s", request, answer)
		}
	}
	if _, err := admin.CoreV1().Secrets(o.vault).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, config := range users {
		if diff := cmp.Diff(absent[name], o.answers(t, config)); diff != "" {
			t.Errorf("%s learns whether a Secret exists (-absent +there):\n%s", name, diff)
		}
		for request, answer := range absent[name] {
			if answer == "" {
				t.Errorf("%s: %s is not refused", name, request)
			}
		}
	}
	for request, answer := range o.answers(t, o.acting("bob")) {
		deletes := strings.HasPrefix(request, "delete") || request == "evict"
		if deletes != strings.Contains(answer, "it outlives Secret "+o.vault+"/key; to lift") || !deletes && answer != "" {
			t.Errorf("bob may read the Secret, but %s is answered with %q", request, answer)
		}
	}
	if why := absent["mallory"]["create"]; !strings.Contains(why, `names Secret `+o.vault+`/key, and who adds that needs the rule {apiGroups: [""], resources: ["secrets"], verbs: ["get"]} in namespace "`+o.vault+`"`) {
		t.Errorf("the refusal of an entry says %q", why)
	}
	if why := absent["mallory"]["delete"]; !strings.Contains(why, "that the user who deletes may not read, which count as there; to lift") || strings.Contains(why, "key") {
		t.Errorf("the refusal of a deletion says %q", why)
	}
}

// R28: a user who protects an object needs only the rights for the entries, and may change an object with entries
// that others have added.
func TestR28_EntriesNeedRightsWhenTheyAreAdded(t *testing.T) {
	o := newOutliving(t)
	admin := o.prepare(t)
	o.bind(t, o.namespace, o.writer, "ann")
	maps := typed(t, o.acting("ann")).CoreV1().ConfigMaps(o.namespace)
	update := func(name string, change func(*corev1.ConfigMap)) error {
		m, err := maps.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(m)
		_, err = maps.Update(t.Context(), m, metav1.UpdateOptions{})
		return err
	}
	own := o.listing(t, protection.Outlived{APIVersion: "v1", Kind: "ConfigMap", Name: "plain"})
	for name, test := range map[string]struct {
		err     error
		refused bool
	}{
		"an entry that she may read":      {update("plain", func(m *corev1.ConfigMap) { m.Annotations, m.Labels = own.Annotations, own.Labels }), false},
		"another field":                   {update("kept", func(m *corev1.ConfigMap) { m.Data = map[string]string{"a": "b"} }), false},
		"the label of an entry of others": {update("kept", func(m *corev1.ConfigMap) { m.Labels = nil }), false},
		"a finalizer": {update("plain", func(m *corev1.ConfigMap) {
			m.Annotations = o.listing(t, protection.Outlived{Finalizer: "example.com/x"}).Annotations
		}), true},
		"another namespace": {update("plain", func(m *corev1.ConfigMap) {
			m.Annotations = o.listing(t, protection.Outlived{APIVersion: "v1", Kind: "Namespace", Name: o.vault}).Annotations
		}), true},
		"a kind that is not served": {update("plain", func(m *corev1.ConfigMap) {
			m.Annotations = o.listing(t, protection.Outlived{APIVersion: "example.com/v1", Kind: "Later", Name: "x"}).Annotations
		}), true},
		"a binding":                        {o.bindPod(t.Context(), typed(t, o.acting("ann"))), true},
		"an entry of others":               {update("kept", func(m *corev1.ConfigMap) { m.Annotations = nil }), false},
		"the annotation without the label": {update("kept", func(m *corev1.ConfigMap) { m.Annotations = o.metadata.Annotations }), true},
	} {
		if apierrors.IsForbidden(test.err) != test.refused || !test.refused && test.err != nil {
			t.Errorf("%s: %v, want refused %t", name, test.err, test.refused)
		}
	}
	// The workload controllers copy the entries of a template, which its writer was allowed to set.
	workloads, err := o.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CoreV1().ReplicationControllers(o.namespace).Create(t.Context(), o.template(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	copied := &corev1.Pod{ObjectMeta: named(o.metadata, "copied"), Spec: podSpec()}
	if _, err := typed(t, workloads).CoreV1().Pods(o.namespace).Create(t.Context(), copied, metav1.CreateOptions{}); err != nil {
		t.Errorf("a controller cannot write a pod as its template says: %v", err)
	}
}

// bindPod binds a pod with an entry in the binding, which would be copied to the pod.
func (o outliving) bindPod(ctx context.Context, client kubernetes.Interface) error {
	binding := &corev1.Binding{ObjectMeta: named(o.metadata, "plain"), Target: corev1.ObjectReference{Kind: "Node", Name: "none"}}
	return client.CoreV1().Pods(o.namespace).Bind(ctx, binding, metav1.CreateOptions{})
}
