package podlogs

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// query reads the options of a request, and keeps the first mistake.
type query struct {
	values url.Values
	err    error
}

// parse reads the options of a request for logs.
func parse(values url.Values) (*corev1.PodLogOptions, error) {
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
