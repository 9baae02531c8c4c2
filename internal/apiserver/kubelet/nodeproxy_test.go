package kubelet

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func aNode(runtime, address string, port int32) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	node.Status.NodeInfo.ContainerRuntimeVersion = runtime
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = port
	if address != "" {
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "worker"}, {Type: corev1.NodeInternalIP, Address: address}}
	}
	return node
}

// The agent must identify as the agent of this node, whatever scheme was requested. Other ports are reached
// only at addresses that can belong to another machine.
func TestNodeProxyLocates(t *testing.T) {
	const real = "containerd://2"
	asked := ""
	e := &nodeProxy{remote: remote{tls: func(node string) (*tls.Config, error) {
		asked = node
		return &tls.Config{MinVersion: tls.VersionTLS13}, nil
	}}}
	for name, test := range map[string]struct {
		node         *corev1.Node
		scheme, port string
		want, wrong  string
		asAgent      bool
	}{
		"the agent":          {aNode(real, "192.0.2.1", 10250), "", "", "https://192.0.2.1:10250", "", true},
		"its port":           {aNode(real, "127.0.0.1", 10250), "http", "10250", "https://127.0.0.1:10250", "", true},
		"another port":       {aNode(real, "192.0.2.1", 10250), "http", "9100", "http://192.0.2.1:9100", "", false},
		"IPv6":               {aNode(real, "2001:db8::1", 10250), "https", "9100", "https://[2001:db8::1]:9100", "", false},
		"no agent":           {aNode(real, "192.0.2.1", 0), "", "", "", "cannot reach the agent of node worker, which runs in another process and serves neither logs nor streams", false},
		"port 0 is no agent": {aNode(real, "192.0.2.1", 0), "http", "0", "http://192.0.2.1:0", "", false},
		"no address":         {aNode(real, "", 10250), "", "", "", "cannot reach the agent of node worker, which has no address in its status", false},
		"a loopback":         {aNode(real, "127.0.0.1", 10250), "", "22", "", "address not allowed", false},
		"a loopback in IPv6": {aNode(real, "::ffff:127.0.0.1", 10250), "", "22", "", "address not allowed", false},
		"what is no address": {aNode(real, "localhost", 10250), "", "22", "", "address not allowed", false},
		"a link-local one":   {aNode(real, "169.254.169.254", 10250), "", "80", "", "address not allowed", false},
		"a simulated node":   {aNode("simulated://1", "192.0.2.1", 0), "", "80", "", "error trying to reach service: node worker is simulated, and nothing listens at its ports", false},
		"the usual port":     {aNode(real, "192.0.2.1", 0), "https", "10250", "", "cannot reach the agent of node worker, which runs in another process and serves neither logs nor streams", false},
		"not the usual port": {aNode(real, "192.0.2.1", 10260), "https", "10250", "https://192.0.2.1:10250", "", false},
	} {
		asked = ""
		got, transport, err := e.locate(test.node, test.scheme, test.port)
		if test.wrong != "" {
			if err == nil || err.Error() != test.wrong {
				t.Errorf("%s: %v, %v; want %s", name, got, err, test.wrong)
			}
			continue
		}
		if err != nil || got.String() != test.want || (asked == "worker") != test.asAgent {
			t.Errorf("%s: %v, %v, the certificate of %q; want %s", name, got, err, asked, test.want)
			continue
		}
		if unverified := transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify; unverified == test.asAgent {
			t.Errorf("%s: unverified is %t", name, unverified)
		}
	}
}

// localAgent is the agent of the node worker in this process, which answers with the URL of the request.
type localAgent struct{ Nodes }

func (localAgent) Handler(node string) (http.Handler, error) {
	if node != "worker" {
		return nil, apierrors.NewNotFound(corev1.Resource("nodes"), node)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.RequestURI()) }), nil
}

// Requests for a node in this process are served here, with the rest of the path; other nodes are reached
// at their address.
func TestNodesOfThisProcessAreServedHere(t *testing.T) {
	e := &nodeProxy{local: func() Nodes { return localAgent{} }}
	for of, want := range map[string]string{"": "/?a=b", "/healthz": "/healthz?a=b", "pods/": "/pods/?a=b", "/../x": "/x?a=b"} {
		handler, err := e.handler(aNode("simulated://1", "", 0), "", "", of, nil)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/nodes/worker/proxy"+of+"?a=b", http.NoBody))
		if got := w.Body.String(); got != want {
			t.Errorf("%q: %s, want %s", of, got, want)
		}
	}
	for port, isAgent := range map[string]bool{"": true, "10250": true, "10260": false, "010250": false, "0": false} {
		if _, err := e.handler(aNode("simulated://1", "", 0), "https", port, "pods", nil); (err == nil) != isAgent || err != nil && !apierrors.IsServiceUnavailable(err) {
			t.Errorf("port %q: %v, want the agent: %t", port, err, isAgent)
		}
		if _, err := e.handler(aNode("simulated://1", "", 10260), "https", port, "pods", nil); (err == nil) != (port == "" || port == "10260") {
			t.Errorf("port %q of an agent that names 10260: %v", port, err)
		}
	}
	other := aNode("simulated://1", "", 0)
	other.Name = "other"
	if _, err := e.handler(other, "", "", "", nil); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a node that is not there: %v", err)
	}
}
