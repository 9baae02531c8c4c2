// Package containerlogs is the protocol between the API server and the agent of a node in
// another process for the logs of containers:
//
//	kubectl logs ─▶ pods/NAME/log ─▶ GET /containerLogs/NAMESPACE/POD/CONTAINER?… ─▶ agent
//
// Path and query parameters are the same as for the kubelet. The API server (package podlogs)
// parses a client's options and writes the URL for the agent; the agent's server parses the
// same options again, and both stream the log with Stream.
package containerlogs

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PathPrefix is the path below which an agent serves logs, as the kubelet does.
const PathPrefix = "/containerLogs/"

// uidParameter carries the pod's UID to the agent. The kubelet has no such parameter. With it, the
// agent never returns the log of an earlier or later pod of the same name.
const uidParameter = "uid"

// optionsQuery reads options from query parameters and keeps the first error.
type optionsQuery struct {
	values url.Values
	err    error
}

// ParseOptions returns the log options in the query parameters of a request, from a client to the
// API server or from the API server to an agent.
func ParseOptions(values url.Values) (*corev1.PodLogOptions, error) {
	q := &optionsQuery{values: values}
	o := &corev1.PodLogOptions{
		Container: values.Get("container"), Follow: q.flag("follow"), Previous: q.flag("previous"), Timestamps: q.flag("timestamps"),
		SinceSeconds: q.number("sinceSeconds", 1), TailLines: q.number("tailLines", 0), LimitBytes: q.number("limitBytes", 1),
	}
	if text := values.Get("sinceTime"); text != "" {
		since, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, fmt.Errorf("sinceTime: %w", err)
		}
		o.SinceTime = &metav1.Time{Time: since}
	}
	if q.err == nil && o.SinceTime != nil && o.SinceSeconds != nil {
		q.err = errors.New("at most one of sinceTime or sinceSeconds may be specified")
	}
	return o, q.err
}

func (q *optionsQuery) flag(name string) bool {
	text := q.values.Get(name)
	if text == "" {
		return false
	}
	set, err := strconv.ParseBool(text)
	if err != nil && q.err == nil {
		q.err = fmt.Errorf("%s: %w", name, err)
	}
	return set
}

func (q *optionsQuery) number(name string, minimum int64) *int64 {
	text := q.values.Get(name)
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if (err != nil || n < minimum) && q.err == nil {
		q.err = fmt.Errorf("%s: %q must be an integer greater than or equal to %d", name, text, minimum)
	}
	return &n
}

// RequestURL returns the path and the query of a request to the agent for the log of a
// container of this very pod.
func RequestURL(pod *corev1.Pod, o *corev1.PodLogOptions) (path, query string) {
	values := url.Values{uidParameter: {string(pod.UID)}}
	for name, set := range map[string]bool{"follow": o.Follow, "previous": o.Previous, "timestamps": o.Timestamps} {
		if set {
			values.Set(name, "true")
		}
	}
	for name, n := range map[string]*int64{"sinceSeconds": o.SinceSeconds, "tailLines": o.TailLines, "limitBytes": o.LimitBytes} {
		if n != nil {
			values.Set(name, strconv.FormatInt(*n, 10))
		}
	}
	if o.SinceTime != nil {
		values.Set("sinceTime", o.SinceTime.UTC().Format(time.RFC3339Nano))
	}
	return PathPrefix + pod.Namespace + "/" + pod.Name + "/" + o.Container, values.Encode()
}

// MatchesUID reports whether these query parameters name this UID, or no UID.
func MatchesUID(values url.Values, uid types.UID) bool {
	requested := values.Get(uidParameter)
	return requested == "" || requested == string(uid)
}
