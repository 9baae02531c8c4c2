package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
	podsecurity "k8s.io/pod-security-admission/api"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/testing/transcript"
)

// secured creates a namespace with labels of Pod Security Standards.
func (s *server) secured(t *testing.T, labels map[string]string) string {
	t.Helper()
	c := s.namespaces(t)
	o := c.named(unique("secured"))
	o.SetLabels(labels)
	return c.post(o).GetName()
}

// onTheHost returns a pod that the level baseline does not permit.
func onTheHost(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		HostNetwork: true, Containers: []corev1.Container{{Name: "a", Image: "a"}},
	}}
}

// TestPodSecurityRefusesPods checks that the level of enforce applies to new pods and to containers that are
// added to them.
func TestPodSecurityRefusesPods(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	namespace := s.secured(t, map[string]string{podsecurity.EnforceLevelLabel: "baseline"})
	pods := typed(t, s.config).CoreV1().Pods(namespace)
	_, err := pods.Create(t.Context(), onTheHost("host"), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`) {
		t.Errorf("a pod on the network of the host: %v", err)
	}
	plain := onTheHost("plain")
	plain.Spec.HostNetwork = false
	created, err := pods.Create(t.Context(), plain, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debugger", Image: "a", SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}},
	}}}
	if _, err := pods.UpdateEphemeralContainers(t.Context(), "plain", created, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a container with a capability is added: %v", err)
	}
	if _, err := typed(t, s.config).CoreV1().Pods(s.namespace(t)).Create(t.Context(), onTheHost("host"), metav1.CreateOptions{}); err != nil {
		t.Errorf("in a namespace without labels: %v", err)
	}
}

// TestPodSecurityWarnsOfTemplates checks that clients are warned of pods that the level of warn does not permit,
// and of templates of such pods in any kind and version. Templates are not refused.
func TestPodSecurityWarnsOfTemplates(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	namespace := s.secured(t, map[string]string{podsecurity.WarnLevelLabel: "baseline", podsecurity.EnforceLevelLabel: "privileged"})
	spec := map[string]any{"hostNetwork": true, "restartPolicy": "Always", "containers": []any{map[string]any{"name": "a", "image": "a"}}}
	template := map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}, "spec": spec}
	once := map[string]any{"spec": map[string]any{"hostNetwork": true, "restartPolicy": "Never", "containers": spec["containers"]}}
	selected := map[string]any{"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}, "template": template}}
	for _, test := range []struct {
		kind    schema.GroupVersionKind
		plural  string
		content map[string]any
	}{
		{gvk("", "v1", "Pod"), "pods", map[string]any{"spec": spec}},
		{gvk("", "v1", "PodTemplate"), "podtemplates", map[string]any{"template": template}},
		{gvk("", "v1", "ReplicationController"), "replicationcontrollers", map[string]any{"spec": map[string]any{"template": template}}},
		{gvk("apps", "v1", "ReplicaSet"), "replicasets", selected},
		{gvk("apps", "v1", "Deployment"), "deployments", selected},
		{gvk("apps", "v1", "StatefulSet"), "statefulsets", selected},
		{gvk("apps", "v1", "DaemonSet"), "daemonsets", selected},
		{gvk("extensions", "v1beta1", "Deployment"), "deployments", selected},
		{gvk("batch", "v1", "Job"), "jobs", map[string]any{"spec": map[string]any{"template": once}}},
		{gvk("batch", "v1", "CronJob"), "cronjobs", map[string]any{"spec": map[string]any{
			"schedule": "@daily", "jobTemplate": map[string]any{"spec": map[string]any{"template": once}},
		}}},
	} {
		c := s.collection(t, test.kind, test.plural, namespace, test.content)
		name := unique("warned")
		code, headers := s.headers(t, http.MethodPost, c.path, c.named(name))
		if code != http.StatusCreated || !slices.ContainsFunc(headers.Values("Warning"), func(w string) bool {
			return strings.Contains(w, `would violate PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)`)
		}) {
			t.Errorf("%s: %d, warnings %q", test.kind, code, headers.Values("Warning"))
		}
		if code, headers := s.headers(t, http.MethodPatch, c.at(name), map[string]any{"metadata": map[string]any{"labels": map[string]any{"c": "d"}}}); code != http.StatusOK ||
			len(headers.Values("Warning")) > 0 != (test.plural != "pods") {
			t.Errorf("%s is labelled: %d, warnings %q", test.kind, code, headers.Values("Warning"))
		}
	}
}

// headers sends a request and returns the code and the headers of the response.
func (s *server) headers(t *testing.T, method, path string, body any) (int, http.Header) {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.HTTPClientFor(s.config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, s.config.Host+path, strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", map[string]string{http.MethodPost: "application/json", http.MethodPatch: string(types.MergePatchType)}[method])
	answer, err := transport.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode, answer.Header
}

// TestPodSecurityOfNamespaces checks that labels with unknown levels are refused, and that a level which existing
// pods violate is accepted with a warning.
func TestPodSecurityOfNamespaces(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	namespace := s.namespace(t)
	labelled := func(key, value string) map[string]any {
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}}
	}
	for label, value := range map[string]string{
		podsecurity.EnforceLevelLabel: "bogus", podsecurity.AuditLevelLabel: "bogus", podsecurity.WarnLevelLabel: "Restricted", podsecurity.EnforceVersionLabel: "1.30",
	} {
		_, err := s.namespaces(t).patch(namespace, types.MergePatchType, labelled(label, value))
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.labels["+label+"]") {
			t.Errorf("%s=%s: %v", label, value, err)
		}
	}
	pods := typed(t, s.config).CoreV1().Pods(namespace)
	for _, name := range []string{"b", "a", "c"} {
		if _, err := pods.Create(t.Context(), onTheHost(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		fmt.Sprintf(`299 - "existing pods in namespace \"%s\" violate the new PodSecurity enforce level \"baseline:latest\""`, namespace),
		`299 - "a (and 2 other pods): host namespaces"`,
	}
	// A server that needs more than a second to list the pods warns of that instead.
	eventually.Agrees(t, func() string {
		code, headers := s.headers(t, http.MethodPatch, "/api/v1/namespaces/"+namespace+"?dryRun=All", labelled(podsecurity.EnforceLevelLabel, "baseline"))
		if got := headers.Values("Warning"); code != http.StatusOK || !slices.Equal(got, want) {
			return fmt.Sprintf("the level becomes baseline: %d, warnings %q, want %q", code, got, want)
		}
		return ""
	})
}

// TestPodSecurityConfiguration checks that the file of --admission-control-config-file sets exemptions, and the levels
// of namespaces without labels. The audit log contains the level, and violations of the level of audit.
func TestPodSecurityConfiguration(t *testing.T) {
	log := &transcript.Transcript{}
	file := filepath.Join(t.TempDir(), "admission.yaml")
	const configuration = `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline, audit: restricted}
    exemptions: {namespaces: [exempt]}
`
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, func(c *apiserver.Config) { c.Audit, c.AdmissionConfig = log, file })
	s.namespaces(t).create("exempt")
	core := typed(t, s.config).CoreV1()
	if _, err := core.Pods("default").Create(t.Context(), onTheHost("refused"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a pod that the level of the file does not permit: %v", err)
	}
	plain := onTheHost("plain")
	plain.Spec.HostNetwork = false
	if _, err := core.Pods("default").Create(t.Context(), plain, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := core.Pods("exempt").Create(t.Context(), onTheHost("exempted"), metav1.CreateOptions{}); err != nil {
		t.Errorf("in a namespace that is exempt: %v", err)
	}
	wanted := map[string]map[string]string{
		"refused":  {podsecurity.EnforcedPolicyAnnotationKey: "baseline:latest", podsecurity.AuditViolationsAnnotationKey: `would violate PodSecurity "restricted:latest": host namespaces`},
		"plain":    {podsecurity.EnforcedPolicyAnnotationKey: "baseline:latest", podsecurity.AuditViolationsAnnotationKey: `would violate PodSecurity "restricted:latest": allowPrivilegeEscalation`},
		"exempted": {podsecurity.ExemptionReasonAnnotationKey: "namespace"},
	}
	eventually.Agrees(t, func() string {
		for line := range strings.Lines(log.String()) {
			var e auditv1.Event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if e.Verb != "create" || e.ObjectRef == nil || e.ObjectRef.Resource != "pods" {
				continue
			}
			for key, value := range wanted[e.ObjectRef.Name] {
				if got := e.Annotations[podsecurity.AuditAnnotationPrefix+key]; !strings.HasPrefix(got, value) {
					t.Errorf("%s: %s is %q, want %q", e.ObjectRef.Name, key, got, value)
				}
			}
			delete(wanted, e.ObjectRef.Name)
		}
		if len(wanted) > 0 {
			return "not in the log: " + log.String()
		}
		return ""
	})
}
