package kubeletapi

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestStreamRequestRoundTrips checks that the agent parses the same request that the API server got.
func TestStreamRequestRoundTrips(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-1"}}
	for name, test := range map[string]struct {
		request StreamRequest
		path    string
	}{
		"a command":   {StreamRequest{Kind: Exec, Container: "app", Command: []string{"sh", "-c", "echo $A & echo 'b c'"}, Stdout: true, Stderr: true}, "/exec/default/web/app"},
		"a terminal":  {StreamRequest{Kind: Exec, Container: "app", Command: []string{"sh"}, Stdin: true, Stdout: true, TTY: true}, "/exec/default/web/app"},
		"attached":    {StreamRequest{Kind: Attach, Container: "app", Stdin: true, Stderr: true}, "/attach/default/web/app"},
		"no port yet": {StreamRequest{Kind: PortForward}, "/portForward/default/web"},
		"some ports":  {StreamRequest{Kind: PortForward, Ports: []int32{80, 65535}}, "/portForward/default/web"},
	} {
		t.Run(name, func(t *testing.T) {
			path, query := test.request.URL(pod)
			if path != test.path {
				t.Errorf("path %s, want %s", path, test.path)
			}
			values, err := url.ParseQuery(query)
			if err != nil {
				t.Fatal(err)
			}
			got, err := ParseStream(test.request.Kind, test.request.Container, values)
			if diff := cmp.Diff(test.request, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if !matchesUID(values, "uid-1") || matchesUID(values, "uid-2") {
				t.Errorf("the pod in %s is not the one with uid-1", query)
			}
		})
	}
}

func TestParseStreamRefusesInvalid(t *testing.T) {
	for name, test := range map[string]struct {
		kind        StreamKind
		query, want string
	}{
		"no stream":         {Exec, "command=sh", "must be set"},
		"only a terminal":   {Attach, "tty=1", "must be set"},
		"a port by name":    {PortForward, "port=http", `"http" is not a port`},
		"a port that is 0":  {PortForward, "port=80&port=0", `"0" is not a port`},
		"a port too large":  {PortForward, "port=65536", `"65536" is not a port`},
		"a port below zero": {PortForward, "port=-1", `"-1" is not a port`},
	} {
		values, err := url.ParseQuery(test.query)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseStream(test.kind, "app", values); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %+v, %v; want %q", name, got, err, test.want)
		}
	}
}
