package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/kubelet"
	"github.com/coppice-dev/coppice/internal/node/kubeletapi"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// streamedNodes are nodes of this process, with the node "here", which responds with the request that it got.
type streamedNodes struct{ kubelet.Nodes }

func (streamedNodes) Stream(_ context.Context, pod *corev1.Pod, r kubeletapi.StreamRequest) (*url.URL, error) {
	if pod.Spec.NodeName != "here" {
		return nil, apierrors.NewNotFound(corev1.Resource("nodes"), pod.Spec.NodeName)
	}
	return nil, apierrors.NewConflict(corev1.Resource("pods"), pod.Name, fmt.Errorf("asked for %+v", r))
}

// startStreamed starts a server with pods for streams: two bound to the node of this process, and others. It returns
// their namespace and path.
func startStreamed(t *testing.T) (s *server, namespace, path string) {
	t.Helper()
	s = startServer(t, func(c *apiserver.Config) {
		c.Companions = func() apiserver.Companions { return apiserver.Companions{Nodes: streamedNodes{}} }
	})
	namespace = s.namespace(t)
	for name, node := range map[string]string{"web": "here", "several": "here", "unbound": "", "lost": "nowhere"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "app", Image: "image"}},
		}}
		if name == "several" {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "side", Image: "image"})
		}
		if _, err := typed(t, s.config).CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return s, namespace, "/api/v1/namespaces/" + namespace + "/pods/"
}

// The node gets the request for a stream as the client has sent it; impossible requests are refused.
func TestNodeGetsTheStreamAsTheClientHasSentIt(t *testing.T) {
	s, _, path := startStreamed(t)
	for name, test := range map[string]struct {
		method, target string
		status         int
		says           string
	}{
		"a command": {
			http.MethodPost, "web/exec?command=sh&command=-c&command=echo+a&stdout=true&stderr=1&stdin=false", http.StatusConflict,
			"asked for {Kind:exec Container:app Command:[sh -c echo a] Stdin:false Stdout:true Stderr:true TTY:false Ports:[]}",
		},
		"a terminal, with GET": {
			http.MethodGet, "several/exec?container=side&command=sh&stdin=true&tty=true", http.StatusConflict,
			"asked for {Kind:exec Container:side Command:[sh] Stdin:true Stdout:false Stderr:false TTY:true Ports:[]}",
		},
		"attach":           {http.MethodPost, "web/attach?stdout=true", http.StatusConflict, "asked for {Kind:attach Container:app Command:[] Stdin:false Stdout:true"},
		"ports":            {http.MethodGet, "several/portforward?ports=80&ports=443", http.StatusConflict, "asked for {Kind:portForward Container: Command:[] Stdin:false Stdout:false Stderr:false TTY:false Ports:[80 443]}"},
		"no streams":       {http.MethodPost, "web/exec?command=sh", http.StatusBadRequest, "you must specify at least 1 of stdin, stdout, stderr"},
		"which container":  {http.MethodPost, "several/exec?command=sh&stdout=true", http.StatusBadRequest, "a container name must be specified for pod several, choose one of: [app side]"},
		"no container":     {http.MethodPost, "web/attach?container=x&stdout=true", http.StatusBadRequest, "container x is not valid for pod web"},
		"no pod":           {http.MethodPost, "none/exec?command=sh&stdout=true", http.StatusNotFound, `pods \"none\" not found`},
		"not bound":        {http.MethodPost, "unbound/exec?command=sh&stdout=true", http.StatusBadRequest, "pod unbound does not have a host assigned"},
		"a node not there": {http.MethodPost, "lost/portforward", http.StatusServiceUnavailable, "the agent of node nowhere, which cannot be found because the node does not exist"},
	} {
		status, text := forge(t, s.config, forged{method: test.method, path: path + test.target})
		if status != test.status || !strings.Contains(text, test.says) {
			t.Errorf("%s: %d %s; want %d %q", name, status, text, test.status, test.says)
		}
	}
}

// A user who may only get a stream, the verb of a WebSocket, may not open one.
func TestStreamsNeedCreate(t *testing.T) {
	s, namespace, path := startStreamed(t)
	for _, verb := range []string{"get", "create"} {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "may-" + verb}, Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"get", verb}, APIGroups: []string{""}, Resources: []string{"pods/exec", "pods/attach", "pods/portforward"}},
			{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}},
		}}
		if _, err := typed(t, s.config).RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.bind(t, namespace, role.Name, verb)
		for _, target := range []string{"web/exec?command=sh&stdout=true", "web/attach?stdout=true", "web/portforward"} {
			status, text := forge(t, s.acting(verb), forged{method: http.MethodGet, path: path + target})
			if want := map[string]int{"get": http.StatusForbidden, "create": http.StatusConflict}[verb]; status != want {
				t.Errorf("%s, who may %s: %d %s; want %d", target, verb, status, text, want)
			}
		}
	}
}

// Admission gets the options of a stream, with the operation CONNECT.
func TestStreamsAreAdmitted(t *testing.T) {
	s, _, path := startStreamed(t)
	client, fail := typed(t, s.config).AdmissionregistrationV1(), admissionregistrationv1.Fail
	_, err := client.ValidatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "no-shells"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Connect},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/exec"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{
				Expression: `object.kind == "PodExecOptions" && !("sh" in object.command)`, MessageExpression: `"no " + object.command[0] + " in " + request.name`,
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "no-shells"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "no-shells", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	request := func(target string) (int, string) {
		return forge(t, s.config, forged{method: http.MethodPost, path: path + target})
	}
	eventually.Agrees(t, func() string {
		if status, text := request("web/exec?command=sh&stdout=true"); status != http.StatusUnprocessableEntity || !strings.Contains(text, "no sh in web") {
			return fmt.Sprintf("the policy does not refuse: %d %s", status, text)
		}
		return ""
	})
	if status, text := request("web/exec?command=ls&stdout=true"); status != http.StatusConflict {
		t.Errorf("another command: %d %s", status, text)
	}
	if status, text := request("web/attach?stdout=true"); status != http.StatusConflict {
		t.Errorf("attach: %d %s", status, text)
	}
}
