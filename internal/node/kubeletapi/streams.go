package kubeletapi

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// StreamKind is the kind of a stream. Its value is the first element of the path on an agent.
type StreamKind string

// The kinds of streams.
const (
	Exec        StreamKind = "exec"
	Attach      StreamKind = "attach"
	PortForward StreamKind = "portForward"
)

// StreamKinds returns all kinds of streams.
func StreamKinds() []StreamKind { return []StreamKind{Exec, Attach, PortForward} }

// StreamRequest is a request for a stream to a pod.
type StreamRequest struct {
	Kind StreamKind
	// Container is the name of the container; not for PortForward.
	Container string
	// Command is the command and its arguments, for Exec.
	Command []string
	// The streams of the process, and whether it has a terminal; not for PortForward.
	Stdin, Stdout, Stderr, TTY bool
	// Ports are the ports of the pod, for PortForward by WebSocket. With SPDY the client names
	// the port of each stream in its headers.
	Ports []int32
}

// The query parameters of streams.
const (
	commandParameter = "command"
	stdinParameter   = "input"
	stdoutParameter  = "output"
	stderrParameter  = "error"
	ttyParameter     = "tty"
	portParameter    = "port"
)

// flags returns the query parameters of the streams of a process.
func (r *StreamRequest) flags() map[string]*bool {
	return map[string]*bool{stdinParameter: &r.Stdin, stdoutParameter: &r.Stdout, stderrParameter: &r.Stderr, ttyParameter: &r.TTY}
}

// URL returns the path and the query of the request to the agent of this very pod.
func (r StreamRequest) URL(pod *corev1.Pod) (path, query string) {
	path = "/" + string(r.Kind) + "/" + pod.Namespace + "/" + pod.Name
	values := url.Values{uidParameter: {string(pod.UID)}}
	if r.Kind == PortForward {
		for _, port := range r.Ports {
			values.Add(portParameter, strconv.Itoa(int(port)))
		}
		return path, values.Encode()
	}
	for name, set := range r.flags() {
		if *set {
			values.Set(name, "1")
		}
	}
	if len(r.Command) > 0 {
		values[commandParameter] = slices.Clone(r.Command)
	}
	return path + "/" + r.Container, values.Encode()
}

// Pattern returns the pattern of the paths of a kind, for http.ServeMux. Its wildcards are
// namespace, pod and, unless the kind is PortForward, container.
func (k StreamKind) Pattern() string {
	pattern := "/" + string(k) + "/{namespace}/{pod}"
	if k == PortForward {
		return pattern
	}
	return pattern + "/{container}"
}

// ParseStream returns the request with these query parameters.
func ParseStream(kind StreamKind, container string, values url.Values) (StreamRequest, error) {
	r := StreamRequest{Kind: kind}
	if kind == PortForward {
		for _, text := range values[portParameter] {
			port, err := strconv.ParseUint(text, 10, 16)
			if err != nil || port == 0 {
				return StreamRequest{}, fmt.Errorf("%s: %q is not a port", portParameter, text)
			}
			r.Ports = append(r.Ports, int32(port))
		}
		return r, nil
	}
	r.Container, r.Command = container, values[commandParameter]
	for name, set := range r.flags() {
		*set = values.Get(name) == "1" || values.Get(name) == "true"
	}
	if !r.Stdin && !r.Stdout && !r.Stderr {
		return StreamRequest{}, fmt.Errorf("one of %s, %s and %s must be set", stdinParameter, stdoutParameter, stderrParameter)
	}
	return r, nil
}
