package sections

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// leastShare is the minimum number of requests per pod for which a kind of request gets a
// figure.
const leastShare = 0.05

// requestsForEach ends the name of the figure of all requests.
const requestsForEach = ", requests for each pod"

// openAudit opens an audit log at its present end.
func openAudit(path string) (*os.File, error) {
	log, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	_, err = log.Seek(0, io.SeekEnd)
	return log, err
}

// countRequests counts the requests in the log by user, verb, resource and, if they failed,
// status. Watches are left out: they are long-lived.
func countRequests(log io.Reader) (map[string]int, error) {
	counts := map[string]int{}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			break // a line that is being written
		}
		if e.Verb != "watch" && e.Stage == auditv1.StageResponseComplete {
			counts[kindOf(e)]++
		}
	}
	return counts, lines.Err()
}

// kindOf describes a request: its user, its verb and resource, and its status if it failed.
func kindOf(e auditv1.Event) string {
	what := e.Verb
	if o := e.ObjectRef; o != nil {
		what += " " + o.Resource
		if o.Subresource != "" {
			what += "/" + o.Subresource
		}
	}
	if s := e.ResponseStatus; s != nil && s.Code >= 300 {
		what += fmt.Sprintf(" (%d)", s.Code)
	}
	return strings.TrimPrefix(e.User.Username, "system:coppice:") + " " + what
}

// addRequests adds the number of requests per pod, in total and by kind.
func (b *Bench) addRequests(step string, counts map[string]int, pods int) {
	total := 0
	for _, n := range counts {
		total += n
	}
	each := func(n int) float64 { return float64(n) / float64(pods) }
	b.add(coppiceUp, step+requestsForEach, "", each(total))
	kinds := slices.SortedFunc(maps.Keys(counts), func(one, other string) int {
		return cmp.Or(counts[other]-counts[one], strings.Compare(one, other))
	})
	for _, kind := range kinds {
		if each(counts[kind]) >= leastShare {
			b.add(coppiceUp, step+", "+kind, "", each(counts[kind]))
		}
	}
}
