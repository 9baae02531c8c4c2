package containers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// client is a kubectl that speaks one of the protocols of streams.
type client struct {
	program     []string
	environment []string
}

// clients returns a client for each protocol. WebSockets are spoken by the kubectl that is built into coppice: an older one
// may read from the connection before it has made its streams, and drops what a command has printed by then
// (kubernetes#131189).
func clients() map[string]client {
	return map[string]client{
		"websocket": {[]string{binary, "kubectl"}, []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true", "KUBECTL_PORT_FORWARD_WEBSOCKETS=true"}},
		"spdy":      {[]string{"kubectl"}, []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"}},
	}
}

// command returns a run of the client against a control plane.
func (c client) command(ctx context.Context, p *plane, stdin string, args []string) *exec.Cmd {
	args = append(slices.Clone(c.program), args...)
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.Env = append(append(os.Environ(), "KUBECONFIG="+p.kubeconfig), c.environment...)
	command.Stdin = strings.NewReader(stdin)
	return command
}

// TestExecCopyAttachAndPortForward: commands are run in containers, files copied, processes attached to, and ports
// forwarded, on a node in the process of the API server.
func TestExecCopyAttachAndPortForward(t *testing.T) {
	t.Parallel()
	p, _ := sharedPlane(t)
	for name, c := range clients() {
		t.Run(name, func(t *testing.T) {
			newStory(t, p).streams(c)
		})
	}
}

// TestStreamsOutside: the same on a node in a process of its own.
func TestStreamsOutside(t *testing.T) {
	t.Parallel()
	p, outside := outside(t, needDaemon(t), t.TempDir())
	outside()
	for name, c := range clients() {
		t.Run(name, func(t *testing.T) {
			newStory(t, p).streams(c)
		})
	}
}

// streams tries each kind of stream with a pod that echoes its input and serves a page.
func (s *story) streams(c client) {
	t, p := s.t, s.p
	t.Helper()
	served := port()
	script := fmt.Sprintf(`trap 'exit 0' TERM; mkdir /tmp/served; echo page > /tmp/served/index.html
		httpd -p %d -h /tmp/served; touch /out/up; while read line; do echo "read $line"; done; %s`, served, idle)
	s.create(corev1.PodSpec{Containers: []corev1.Container{
		{Name: "main", Command: shell(script), Stdin: true, StdinOnce: true},
		{Name: "beside", Command: shell(idle)},
	}})
	p.eventuallyReady(t, s.name)
	s.mark("up")
	s.execute(c)
	s.copyFiles(c)
	s.attach(c)
	s.forward(c, served)
	if got := p.run(t, "get", "--raw", fmt.Sprintf("/api/v1/namespaces/default/pods/%s:%d/proxy/index.html", s.name, served)); got != "page\n" {
		t.Errorf("through the proxy: %q", got)
	}
	if out, err := s.kubectl(c, "", "exec", s.name, "-c", "other", "--", "true"); err == nil || !strings.Contains(err.Error(), "container other is not valid for pod "+s.name) {
		t.Errorf("exec in a container that does not exist: %s %v", out, err)
	}
	p.run(t, "delete", "pod", s.name)
}

// kubectl runs a client, and returns its stdout. The error has its stderr.
func (s *story) kubectl(c client, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	command := c.command(ctx, s.p, stdin, args)
	out, err := command.Output()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, ended.Stderr)
	}
	return string(out), err
}

// execute: a command has its arguments, its input, output and exit code.
func (s *story) execute(c client) {
	t := s.t
	t.Helper()
	if out, err := s.kubectl(c, "", "exec", s.name, "-c", "main", "--", "sh", "-c", `echo "$0 & $1"; hostname >/dev/null`, "a  b", "c"); err != nil || out != "a  b & c\n" {
		t.Errorf("exec: %q, %v", out, err)
	}
	text := strings.Repeat("0123456789abcdef\n", 20_000)
	if out, err := s.kubectl(c, text, "exec", "-i", s.name, "-c", "beside", "--", "cat"); err != nil || out != text {
		t.Errorf("exec -i: %d bytes of %d, %v", len(out), len(text), err)
	}
	out, err := s.kubectl(c, "", "exec", s.name, "-c", "main", "--", "sh", "-c", "echo out; echo wrong >&2; exit 7")
	ended, ok := errors.AsType[*exec.ExitError](err)
	if !ok || ended.ExitCode() != 7 || out != "out\n" || !strings.HasPrefix(string(ended.Stderr), "wrong\n") {
		t.Errorf("exec of what fails: %q, %v; want code 7", out, err)
	}
}

// copyFiles: kubectl cp copies to the container, and from it.
func (s *story) copyFiles(c client) {
	t := s.t
	t.Helper()
	dir := t.TempDir()
	from, back := filepath.Join(dir, "from"), filepath.Join(dir, "back")
	text := strings.Repeat("some text\n", 100_000)
	if err := os.WriteFile(from, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.kubectl(c, "", "cp", "-c", "main", from, s.name+":/tmp/there"); err != nil {
		t.Error(err)
	}
	if _, err := s.kubectl(c, "", "cp", "-c", "main", s.name+":/tmp/there", back); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(back); err != nil || string(got) != text {
		t.Errorf("copied there and back: %d bytes of %d, %v", len(got), len(text), err)
	}
}

// attach: input reaches the process, and its output comes back, for as long as it runs.
func (s *story) attach(c client) {
	t := s.t
	t.Helper()
	lines, end := s.begin(c, "hello\n", "attach", "-i", s.name, "-c", "main")
	defer end()
	if line, err := lines.ReadString('\n'); err != nil || line != "read hello\n" {
		t.Errorf("attach -i: %q, %v", line, err)
	}
}

// begin starts kubectl, and returns its stdout and a function that ends it.
func (s *story) begin(c client, stdin string, args ...string) (*bufio.Reader, func()) {
	t := s.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	command := c.command(ctx, s.p, stdin, args)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(out), func() {
		cancel()
		_ = command.Wait()
	}
}

// forward: a port of the pod can be read through a port of this machine, also several times.
func (s *story) forward(c client, served int32) {
	t := s.t
	t.Helper()
	lines, end := s.begin(c, "", "port-forward", "pod/"+s.name, fmt.Sprintf(":%d", served))
	defer end()
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address, found := strings.CutPrefix(line, "Forwarding from ")
	address, _, _ = strings.Cut(address, " ")
	if !found {
		t.Fatalf("port-forward: %q", line)
	}
	for range 3 {
		response, err := (&http.Client{Timeout: patience}).Get("http://" + address + "/")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || string(text) != "page\n" {
			t.Errorf("through the port: %q, %v", text, err)
		}
	}
}
