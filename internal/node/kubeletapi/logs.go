package kubeletapi

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LogPath is the path below which an agent serves logs, as the kubelet does.
const LogPath = "/containerLogs/"

// logQuery reads log options from query parameters and keeps the first error.
type logQuery struct {
	values url.Values
	err    error
}

// ParseLogOptions returns the log options in the query parameters of a request, from a client to the
// API server or from the API server to an agent.
func ParseLogOptions(values url.Values) (*corev1.PodLogOptions, error) {
	q := &logQuery{values: values}
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

func (q *logQuery) flag(name string) bool {
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

func (q *logQuery) number(name string, minimum int64) *int64 {
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

// LogURL returns the path and the query of a request to the agent for the log of a
// container of this very pod.
func LogURL(pod *corev1.Pod, o *corev1.PodLogOptions) (path, query string) {
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
	return LogPath + pod.Namespace + "/" + pod.Name + "/" + o.Container, values.Encode()
}
