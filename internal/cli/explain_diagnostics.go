package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/metrics"
	"github.com/coppice-dev/coppice/internal/tools/version"
	"github.com/coppice-dev/coppice/internal/tools/web"
)

// collectorTimeout bounds a request to a running collector.
const collectorTimeout = 10 * time.Second

// ourMetrics is the path of the controllers' metrics on coppice up, where the API server has the usual one.
const ourMetrics = "/coppice" + web.Metrics

// diagnosticsClient reads the diagnostics of a running collector. A nil client stands for no collector.
type diagnosticsClient struct {
	where   string // "the collector at …"
	metrics string // the path
	resume  string // the command that resumes deletions, without the kind at its end; may be empty
	// isNamed is true if the user has named the collector: then a failure to reach it is an error.
	isNamed bool
	get     func(ctx context.Context, path string) ([]byte, error)
}

// findCollector returns a client of the collector that --address names. Without the flag it returns a client of the
// API server, if its version is one of coppice up: that server serves the same diagnostics to administrators.
func (f *explainFlags) findCollector(ctx context.Context, config *rest.Config) (*diagnosticsClient, error) {
	switch f.address {
	case noCollector:
		return nil, nil // no collector
	case "":
	default:
		server, err := url.Parse(f.address)
		if err != nil || server.Host == "" {
			return nil, usageError{fmt.Errorf("--address %q is not a URL such as http://%s", f.address, diagnosticsAddress)}
		}
		return &diagnosticsClient{
			where: "the collector at " + f.address, metrics: web.Metrics, isNamed: true,
			resume: "curl -X POST " + server.JoinPath(web.Resume).String() + "?kind=",
			get: func(ctx context.Context, path string) ([]byte, error) {
				return getFrom(ctx, server.JoinPath(path).String())
			},
		}, nil
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	get := func(ctx context.Context, path string) ([]byte, error) {
		return client.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(ctx)
	}
	if !isCoppice(ctx, get) {
		return nil, nil // no collector
	}
	return &diagnosticsClient{where: "the collector of coppice up", metrics: ourMetrics, get: get}, nil
}

// isCoppice reports whether a server is one of coppice up, which runs Coppice's controllers.
func isCoppice(ctx context.Context, get func(ctx context.Context, path string) ([]byte, error)) bool {
	var served struct {
		GitVersion string `json:"gitVersion"`
	}
	text, err := get(ctx, "/version")
	return err == nil && json.Unmarshal(text, &served) == nil && version.IsOurs(served.GitVersion)
}

func getFrom(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, collectorTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, causeOf(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(text)))
	}
	return text, err
}

// failed returns the error of a collector that the user has named. It ignores errors of other collectors.
func (c *diagnosticsClient) failed(err error) error {
	if err == nil || !c.isNamed {
		return nil
	}
	return fmt.Errorf("%s does not answer: %w; name its --bind-address with --address", c.where, err)
}

// state returns the state of the collector; nil if it is unknown.
func (c *diagnosticsClient) state(ctx context.Context) (*explain.Collector, error) {
	if c == nil {
		return nil, nil // no collector
	}
	var status report.Status
	text, err := c.get(ctx, web.Status)
	if err == nil {
		err = json.Unmarshal(text, &status)
	}
	if err != nil {
		return nil, c.failed(err)
	}
	text, err = c.get(ctx, c.metrics)
	if err != nil {
		return nil, c.failed(err)
	}
	return c.stateOf(&status, text), nil
}

// stateOf returns the parts of a status and of metrics that matter to an explanation. Only the metrics tell which
// controllers run. No object waits for a collector that only observes.
func (c *diagnosticsClient) stateOf(status *report.Status, metricsText []byte) *explain.Collector {
	s := explain.NewCollector(c.where)
	s.Resume = c.resume
	s.Collects = isSynced(metricsText, metrics.GarbageCollector) && !status.ObserveOnly
	s.Empties = isSynced(metricsText, metrics.NamespaceController)
	for _, w := range status.Barrier {
		held := explain.Held{Since: w.Since}
		for _, h := range w.Holds {
			held.Unread = append(held.Unread, explain.HeldBy(h))
		}
		s.Held[ownership.UID(w.UID)] = held
	}
	for _, p := range status.Paused {
		s.Pause(p.Kind, p.Since)
	}
	return s
}

// isSynced reports whether a controller has synced, according to its metrics.
func isSynced(metricsText []byte, controller string) bool {
	return bytes.Contains(metricsText, fmt.Appendf(nil, "coppice_synced{controller=%q} 1\n", controller))
}
