// Package differential sends the same random requests to two API servers, ours and
// another one, and compares what they answer and what they keep: status codes, reasons,
// and the metadata of objects, by which deletion is decided. Requests create, patch and
// replace objects of several kinds, put finalizers on them and take them away, and
// delete them in all ways that the options allow, one by one and as collections.
//
// What differs is a failure, unless it is declared (declared_test.go), with the line of
// docs/semantics.md that declares it. The other server is the one that the kubeconfig in
// COPPICE_CONFORMANCE_KUBECONFIG names; without it, it is a second one of ours, which
// finds out what is not deterministic. COPPICE_TEST_DIFFERENTIAL is the number of
// requests (default 2000). A failure prints the seed of its sequence, which
// COPPICE_TEST_SEED runs alone.
//
//	cd bench && go run ./onkubernetes -dir .. go test ./test/differential -count=1 -v
package differential

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/coppice-dev/coppice/internal/system"
)

const (
	kubeconfigVariable = "COPPICE_CONFORMANCE_KUBECONFIG"
	requestsVariable   = "COPPICE_TEST_DIFFERENTIAL"
	seedVariable       = "COPPICE_TEST_SEED"

	// sequenceLength is how many requests are about the objects of one sequence.
	sequenceLength = 40
	// lanes is how many sequences run at a time.
	lanes = 4
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	os.Exit(m.Run())
}

// startOurs runs a server of ours, without controllers, until the test ends.
func startOurs(t *testing.T) *rest.Config {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan *rest.Config, 1), make(chan error, 1)
	go func() {
		ended <- system.Run(ctx, system.Options{
			Ephemeral: true, GarbageCollector: system.Elsewhere, NamespaceController: system.Elsewhere, Workloads: system.Disabled,
			Version: "v1.37.2", Log: slog.New(slog.DiscardHandler),
		}, func(p system.Plane) { ready <- p.Config })
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
	case <-time.After(time.Minute):
		t.Fatal("our server does not become ready")
	}
	return nil
}

// other is the server that ours is compared with.
func other(t *testing.T) *rest.Config {
	t.Helper()
	path := os.Getenv(kubeconfigVariable)
	if path == "" {
		return startOurs(t)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
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

// report counts what was compared.
type report struct {
	mu       sync.Mutex
	requests int64          // guarded by mu
	refused  int64          // guarded by mu: of these, with an error
	declared map[string]int // guarded by mu: sequences that ended at a declared difference, by its reason
}

func TestSameAnswers(t *testing.T) {
	pair := [2]*server{newServer(t, "ours", startOurs(t)), newServer(t, "theirs", other(t))}
	for _, s := range pair {
		s.define(t)
	}
	requests, first := number(t, requestsVariable, 2000), number(t, seedVariable, 0)
	sequences := (requests + sequenceLength - 1) / sequenceLength
	if first != 0 {
		sequences = 1
	} else {
		first = time.Now().UnixNano() % 1_000_000_000
	}
	r := &report{declared: map[string]int{}}
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
	t.Logf("%d requests in %d sequences, %d of them refused; sequences that ended at a declared difference: %v", r.requests, sequences, r.refused, r.declared)
	if r.refused == 0 || r.refused == r.requests {
		t.Error("of requests like these some succeed and some do not")
	}
}

// run plays one sequence on both servers, until it is over or they differ.
func (r *report) run(ctx context.Context, pair [2]*server, seed int64) error {
	g := newGenerator(rand.New(rand.NewPCG(uint64(seed), 1)), fmt.Sprintf("d-%d-%d", seed, os.Getpid())) //nolint:gosec // it is to be repeatable
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
		reason := declared(request, memory[0].all, answers[0], answers[1])
		r.count(answers[0], reason)
		if reason != "" {
			return nil // the objects differ from here on
		}
		if diff := answers[0].diff(answers[1]); diff != "" {
			return fmt.Errorf("they differ (-ours +theirs):\n%s\nafter\n%s", diff, strings.Join(trace, "\n"))
		}
	}
	return nil
}

func (r *report) count(answer outcome, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	if answer.Code >= 400 {
		r.refused++
	}
	if reason != "" {
		r.declared[reason]++
	}
}
