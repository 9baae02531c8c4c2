package containerstreams

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRequestRoundTrips checks that the agent parses the same request that the API server got.
func TestRequestRoundTrips(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-1"}}
	for name, test := range map[string]struct {
		request Request
		path    string
	}{
		"a command":   {Request{Kind: Exec, Container: "app", Command: []string{"sh", "-c", "echo $A & echo 'b c'"}, Stdout: true, Stderr: true}, "/exec/default/web/app"},
		"a terminal":  {Request{Kind: Exec, Container: "app", Command: []string{"sh"}, Stdin: true, Stdout: true, TTY: true}, "/exec/default/web/app"},
		"attached":    {Request{Kind: Attach, Container: "app", Stdin: true, Stderr: true}, "/attach/default/web/app"},
		"no port yet": {Request{Kind: PortForward}, "/portForward/default/web"},
		"some ports":  {Request{Kind: PortForward, Ports: []int32{80, 65535}}, "/portForward/default/web"},
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
			got, err := Parse(test.request.Kind, test.request.Container, values)
			if diff := cmp.Diff(test.request, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if !MatchesUID(values, "uid-1") || MatchesUID(values, "uid-2") {
				t.Errorf("the pod in %s is not the one with uid-1", query)
			}
		})
	}
}

func TestParseRefusesInvalid(t *testing.T) {
	for name, test := range map[string]struct {
		kind        Kind
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
		if got, err := Parse(test.kind, "app", values); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %+v, %v; want %q", name, got, err, test.want)
		}
	}
}
