// Package differential sends the same random requests to two API servers and compares their
// answers and the objects that they store: status codes, reasons, causes, and whole objects.
// Requests create, patch and replace objects of several kinds, add and remove finalizers, and
// delete objects in all ways that the options allow, one by one and as collections.
//
// TestSameAnswers compares our server with the kube-apiserver that the kubeconfig in
// COPPICE_CONFORMANCE_KUBECONFIG names. Every difference is a failure unless docs/semantics.md
// declares it (declared_test.go); then our server must do what the rules there promise
// (promise_test.go). TestTwoOfOurServersAreEqual compares two servers of ours, which must not differ.
// COPPICE_TEST_DIFFERENTIAL is the number of requests (default 2000). A failure prints the
// seed of its sequence, which COPPICE_TEST_SEED runs alone.
//
// TestObjectsAreStoredAsUpstream compares how the two handle manifests (objects_test.go), and TestFreshServers compares their
// initial objects (seat_test.go).
//
//	cd bench && go run ./onkubernetes -dir .. go test ./test/differential -count=1 -v
package differential

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/coppice-dev/coppice/internal/system"
	"github.com/coppice-dev/coppice/internal/system/assets"
)

const (
	kubeconfigVariable = "COPPICE_CONFORMANCE_KUBECONFIG"
	requestsVariable   = "COPPICE_TEST_DIFFERENTIAL"
	seedVariable       = "COPPICE_TEST_SEED"

	// sequenceLength is the number of requests about the objects of one sequence.
	sequenceLength = 40
	// lanes is the number of sequences that run concurrently.
	lanes = 4
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	os.Exit(m.Run())
}

// seatFlags are those by which test frameworks start kube-apiserver, and the other one is started
// (bench/realserver), as far as they matter here.
var seatFlags = []string{
	"--secure-port=0", "--authorization-mode=RBAC", "--allow-privileged=true", "--disable-admission-plugins=ServiceAccount",
	"--service-cluster-ip-range=10.0.0.0/24",
}

// startOurs runs a server of ours in the place of kube-apiserver until the test ends.
func startOurs(t *testing.T) *rest.Config {
	t.Helper()
	seat, err := assets.ParseAPIServer(seatFlags, func(string) string { return "" }, assets.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	seat.Options.Log = slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan *rest.Config, 1), make(chan error, 1)
	go func() {
		ended <- system.Run(ctx, seat.Options, func(p system.Plane) { ready <- p.Config })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	select {
	case config := <-ready:
		return config
	case err := <-ended:
		ended <- nil
		t.Fatal("our server did not start: ", err)
	case <-time.After(3 * time.Minute):
		t.Fatal("our server does not become ready")
	}
	return nil
}

func number(t *testing.T, variable string, otherwise int64) int64 {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// TestSameAnswers compares our server with kube-apiserver.
func TestSameAnswers(t *testing.T) {
	r := &report{tolerant: true, declared: map[string]int{}}
	r.compare(t, servers(t))
}

// TestTwoOfOurServersAreEqual compares two servers of ours: what differs between them could not be compared
// with upstream either.
func TestTwoOfOurServersAreEqual(t *testing.T) {
	r := &report{declared: map[string]int{}}
	r.compare(t, [2]*apiServer{newServer(t, "one", startOurs(t)), newServer(t, "two", startOurs(t))})
}

// report counts the comparisons.
type report struct {
	tolerant bool // of declared differences

	mu       sync.Mutex
	requests int64          // guarded by mu
	refused  int64          // guarded by mu: of these, with an error
	complete int64          // guarded by mu: sequences that ran to their end
	declared map[string]int // guarded by mu: sequences that ended at a declared difference, by its reason
}

// compare plays as many sequences as the environment asks for.
func (r *report) compare(t *testing.T, pair [2]*apiServer) {
	t.Helper()
	for _, s := range pair {
		s.define(t)
	}
	requests, first := number(t, requestsVariable, 2000), number(t, seedVariable, 0)
	sequences := (requests + sequenceLength - 1) / sequenceLength
	single := first != 0
	if single {
		sequences = 1
	} else {
		first = time.Now().UnixNano() % 1_000_000_000
	}
	seeds := make(chan int64)
	var running sync.WaitGroup
	for range lanes {
		running.Go(func() {
			for seed := range seeds {
				if err := r.run(t.Context(), pair, seed); err != nil {
					t.Errorf("%s=%d: %v", seedVariable, seed, err)
				}
			}
		})
	}
	for i := range sequences {
		if t.Failed() {
			break
		}
		seeds <- first + i
	}
	close(seeds)
	running.Wait()
	t.Logf("%d requests in %d sequences from seed %d, %d of them refused; %d sequences ran to their end; those that ended at a declared difference: %v",
		r.requests, sequences, first, r.refused, r.complete, r.declared)
	if t.Failed() || single {
		return
	}
	if r.refused == 0 || r.refused == r.requests {
		t.Error("of requests like these some succeed and some do not")
	}
	// About half end early: enough must continue, or late requests are never compared.
	if r.complete < sequences/4 {
		t.Errorf("%d of %d sequences ran to their end, want a quarter at least", r.complete, sequences)
	}
}

// run plays one sequence on both servers, until it is over or they differ.
func (r *report) run(ctx context.Context, pair [2]*apiServer, seed int64) error {
	g := newGenerator(rand.New(rand.NewPCG(uint64(seed), 1)), fmt.Sprintf("d-%d-%d", seed, os.Getpid()))
	var trace []string
	for _, s := range pair {
		if err := s.prepare(ctx, g.place); err != nil {
			return err
		}
	}
	memory := [2]*memory{newMemory(), newMemory()}
	for range sequenceLength {
		request := g.next()
		trace = append(trace, request.String())
		var answers [2]outcome
		for i, s := range pair {
			var err error
			if answers[i], err = s.play(ctx, request, memory[i]); err != nil {
				return fmt.Errorf("%s: %w\n%s", s.name, err, strings.Join(trace, "\n"))
			}
		}
		isDeclared, err := r.judge(request, memory[0].all, answers[0], answers[1])
		if err != nil {
			return fmt.Errorf("%w\nafter\n%s", err, strings.Join(trace, "\n"))
		}
		if isDeclared {
			return nil // the objects differ from here on
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.complete++
	return nil
}

// judge compares the outcomes of a request on the two servers, and counts it. before is the state
// that the request met on ours.
func (r *report) judge(request request, before []unstructured.Unstructured, ours, theirs outcome) (isDeclared bool, err error) {
	promised := ours.clone()
	theirs = theirs.clone()
	if r.tolerant {
		reconcile(request, before, &ours, &theirs)
	}
	diff, reason := ours.diff(theirs), ""
	if diff != "" && r.tolerant {
		reason = declared(request, before, ours, theirs)
	}
	switch {
	case reason != "":
		if err := checkPromise(request, before, promised); err != nil {
			return false, fmt.Errorf("%w\nwhere this is declared to differ: %s", err, reason)
		}
	case diff != "":
		return false, fmt.Errorf("they differ (-ours +theirs):\n%s", diff)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	if ours.Code >= http.StatusBadRequest {
		r.refused++
	}
	if reason != "" {
		r.declared[reason]++
	}
	return reason != "", nil
}
