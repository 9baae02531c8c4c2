package crowd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The paths of the control, which is no part of the Kubernetes API.
const (
	reportPath = "/control/report"
	beginPath  = "/control/begin"
	ownersPath = "/control/remove-owners"
	eventsPath = "/control/change"
)

// tick is the time between two groups of changes. Watches send the changes of a group together.
const tick = 5 * time.Millisecond

// seed makes the same choices each time.
const seed = 1

// control answers the requests of a benchmark.
type control struct {
	*http.ServeMux
	server *Server
	random chan *rand.Rand // has the source while nobody uses it
}

func newControl(s *Server) *control {
	c := &control{ServeMux: http.NewServeMux(), server: s, random: make(chan *rand.Rand, 1)}
	c.random <- rand.New(rand.NewPCG(seed, seed))
	c.HandleFunc("GET "+reportPath, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.report()) })
	c.HandleFunc("POST "+beginPath, func(http.ResponseWriter, *http.Request) { s.store.Begin() })
	c.HandleFunc("POST "+ownersPath, func(w http.ResponseWriter, r *http.Request) {
		random := <-c.random
		defer func() { c.random <- random }()
		fmt.Fprint(w, s.store.RemoveOwners(number(r, "count"), random))
	})
	c.HandleFunc("POST "+eventsPath, c.change)
	return c
}

func number(r *http.Request, name string) int {
	n, err := strconv.Atoi(r.URL.Query().Get(name))
	if err != nil {
		return 0
	}
	return n
}

// change modifies objects at a rate and removes owners at another one, for some seconds, and answers with the number of
// changes.
func (c *control) change(w http.ResponseWriter, r *http.Request) {
	rate, owners, seconds := number(r, "rate"), number(r, "owners"), number(r, "seconds")
	random := <-c.random
	defer func() { c.random <- random }()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	began := c.server.store.now()
	changed, removed := 0, 0
	for {
		passed := c.server.store.now().Sub(began)
		isOver := passed >= time.Duration(seconds)*time.Second
		if isOver {
			passed = time.Duration(seconds) * time.Second
		}
		due := func(each, done int) int { return int(passed.Seconds()*float64(each)) - done }
		removed += c.server.store.RemoveOwners(due(owners, removed), random)
		more := due(rate, changed)
		c.server.store.Modify(more, random)
		changed += more
		if isOver {
			fmt.Fprint(w, changed)
			return
		}
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		}
	}
}

func (s *Server) report() Report {
	r := s.store.Report()
	var ends time.Time
	if r.Leader, ends = s.leases.last(); !ends.IsZero() {
		r.LeaseEnds = ends.UnixNano()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Requests = maps.Clone(s.requests)
	return r
}

// Control changes the objects of a server in another process. It is safe for concurrent use.
type Control struct {
	client *http.Client
	server string
}

// NewControl returns the control of the server that a kubeconfig names.
func NewControl(kubeconfig string) (*Control, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of the crowd: %w", err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the crowd: %w", err)
	}
	return &Control{client: client, server: config.Host}, nil
}

// Report returns the state of the server.
func (c *Control) Report(ctx context.Context) (Report, error) {
	var r Report
	body, err := c.do(ctx, http.MethodGet, reportPath, nil)
	if err == nil {
		err = json.Unmarshal(body, &r)
	}
	return r, err
}

// Begin forgets the correct deletions that were counted.
func (c *Control) Begin(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodPost, beginPath, nil)
	return err
}

// RemoveOwners deletes objects that have dependents and no owners, and returns how many.
func (c *Control) RemoveOwners(ctx context.Context, count int) (int, error) {
	return c.counted(ctx, ownersPath, url.Values{"count": {strconv.Itoa(count)}})
}

// Change modifies objects at a rate and removes owners at another one, both for each second, and returns the number of
// modifications when the time is over.
func (c *Control) Change(ctx context.Context, rate, owners, seconds int) (int, error) {
	return c.counted(ctx, eventsPath, url.Values{"rate": {strconv.Itoa(rate)}, "owners": {strconv.Itoa(owners)}, "seconds": {strconv.Itoa(seconds)}})
}

func (c *Control) counted(ctx context.Context, path string, query url.Values) (int, error) {
	body, err := c.do(ctx, http.MethodPost, path, query)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(string(body))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return n, nil
}

func (c *Control) do(ctx context.Context, method, path string, query url.Values) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.server+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("control the crowd: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, mostBody))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("control the crowd: %s %s: %s", path, response.Status, body)
	}
	return body, err
}
