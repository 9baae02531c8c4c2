package ask

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/tools/answer"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/metrics"
	"github.com/coppice-dev/coppice/internal/tools/web"
)

// upMetrics is the path of the controllers' metrics on coppice up, where the API server has the usual one.
const upMetrics = "/coppice" + web.Metrics

// diagnostics reads the diagnostics of a running collector. They need no token on loopback. On a server of coppice up
// they need the rights of an administrator. A nil value stands for no collector.
type diagnostics struct {
	where   string // "the collector at …"
	metrics string // the path
	resume  string // the command that resumes deletions, without the kind at its end; may be empty
	// isNamed is true if the user has named the collector: then a failure to reach it is an error.
	isNamed bool
	get     func(ctx context.Context, path string) ([]byte, error)
}

// diagnostics returns the diagnostics of the collector at the address, or of the API server if the address is empty;
// nil if there is no collector.
func (s *Sources) diagnostics(ctx context.Context) (*diagnostics, error) {
	if s.isNamed() {
		server, err := parseAddress(s.Address)
		if err != nil {
			return nil, err
		}
		return &diagnostics{
			where: "the collector at " + s.Address, metrics: web.Metrics, isNamed: true,
			resume: "curl -X POST " + server.JoinPath(web.Resume).String() + "?kind=",
			get: func(ctx context.Context, path string) ([]byte, error) {
				ctx, cancel := context.WithTimeout(ctx, shortTimeout)
				defer cancel()
				return getFrom(ctx, server.JoinPath(path))
			},
		}, nil
	}
	if s.Address == NoCollector {
		return nil, nil // no collector
	}
	c, err := s.apiServer()
	if err != nil || !c.IsCoppice(ctx) {
		return nil, err
	}
	get := func(ctx context.Context, path string) ([]byte, error) { return c.read(ctx, path, nil) }
	return &diagnostics{where: "the collector of coppice up", metrics: upMetrics, get: get}, nil
}

// refusedError is the error of a collector that responds, but not with an answer.
type refusedError string

func (e refusedError) Error() string { return string(e) }

// getFrom returns the response of a server that needs no token.
func getFrom(ctx context.Context, target *url.URL) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, CauseOf(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		return nil, refusedError(strings.TrimSpace(string(why)))
	}
	return io.ReadAll(response.Body)
}

// failed returns the error of a collector that the user has named. It ignores errors of other collectors.
func (d *diagnostics) failed(err error) error {
	if err == nil || !d.isNamed {
		return nil
	}
	return fmt.Errorf("%s does not answer: %w; name its --bind-address with --address", d.where, err)
}

// state returns the state of the collector; nil if it is unknown.
func (d *diagnostics) state(ctx context.Context) (*explain.Collector, error) {
	if d == nil {
		return nil, nil // no collector
	}
	var status report.Status
	text, err := d.get(ctx, web.Status)
	if err == nil {
		err = json.Unmarshal(text, &status)
	}
	if err != nil {
		return nil, d.failed(err)
	}
	text, err = d.get(ctx, d.metrics)
	if err != nil {
		return nil, d.failed(err)
	}
	return d.stateOf(&status, text), nil
}

// stateOf returns the parts of a status and of metrics that matter to an explanation. Only the metrics tell which
// controllers run. No object waits for a collector that only observes.
func (d *diagnostics) stateOf(status *report.Status, metricsText []byte) *explain.Collector {
	s := answer.CollectorOf(d.where, status)
	s.Resume = d.resume
	s.Collects = isSynced(metricsText, metrics.GarbageCollector) && !status.ObserveOnly
	s.Empties = isSynced(metricsText, metrics.NamespaceController)
	return s
}

// isSynced reports whether a controller has synced, according to its metrics.
func isSynced(metricsText []byte, controller string) bool {
	return bytes.Contains(metricsText, fmt.Appendf(nil, "coppice_synced{controller=%q} 1\n", controller))
}

// records returns the collector's records; none without a collector.
func (d *diagnostics) records(ctx context.Context) ([]report.Record, error) {
	if d == nil {
		return nil, nil
	}
	var records []report.Record
	text, err := d.get(ctx, web.Records)
	if err == nil {
		err = json.Unmarshal(text, &records)
	}
	return records, d.failed(err)
}
