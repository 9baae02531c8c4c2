// Package logs is how the logs of containers come from the agent of a node to the API
// server, where the two are in different processes:
//
//	kubectl logs ─▶ pods/NAME/log ─▶ GET /containerLogs/NAMESPACE/POD/CONTAINER?… ─▶ Handler ─▶ the agent
//
// The path and the options are those of the field. A question has two forms, that of the
// API, which Parse reads, and that of the agent, which Target writes and the Handler reads.
//
// Logs hold what nobody else is to see. So the server answers one client, which it knows
// by its certificate, and shows a certificate that is good for its own node only; before
// either side has seen the other's, nothing is asked and nothing is said.
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

// pathPrefix is where an agent serves logs, as in the field.
const pathPrefix = "/containerLogs/"

// uidParameter names the pod's uid in a question to an agent. The field does not ask by it;
// there may have been another pod of that name.
const uidParameter = "uid"

// query reads the options of a question, and keeps the first mistake.
type query struct {
	values url.Values
	err    error
}

// Parse reads the options of a question, as clients of the API give them.
func Parse(values url.Values) (*corev1.PodLogOptions, error) {
	q := &query{values: values}
	o := &corev1.PodLogOptions{
		Container: values.Get("container"), Follow: q.holds("follow"), Previous: q.holds("previous"), Timestamps: q.holds("timestamps"),
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

func (q *query) holds(name string) bool {
	text := q.values.Get(name)
	if text == "" {
		return false
	}
	holds, err := strconv.ParseBool(text)
	if err != nil && q.err == nil {
		q.err = fmt.Errorf("%s: %w", name, err)
	}
	return holds
}

func (q *query) number(name string, least int64) *int64 {
	text := q.values.Get(name)
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if (err != nil || n < least) && q.err == nil {
		q.err = fmt.Errorf("%s %q is not a number of at least %d", name, text, least)
	}
	return &n
}

// Target is the question about a container of this very pod, as its agent is asked: the
// path and the query of the URL.
func Target(pod *corev1.Pod, o *corev1.PodLogOptions) (path, query string) {
	values := url.Values{uidParameter: {string(pod.UID)}}
	for name, holds := range map[string]bool{"follow": o.Follow, "previous": o.Previous, "timestamps": o.Timestamps} {
		if holds {
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
	return pathPrefix + pod.Namespace + "/" + pod.Name + "/" + o.Container, values.Encode()
}

// isAbout tells whether a question with these values may be about a pod of that uid.
func isAbout(values url.Values, uid types.UID) bool {
	asked := values.Get(uidParameter)
	return asked == "" || asked == string(uid)
}
