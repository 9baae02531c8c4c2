package planted

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/coppicetest"
	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

var (
	all  = flag.Bool("planted.all", false, "find all bugs, not only those that are found fastest")
	runs = flag.Int("planted.runs", 2, "the number of runs without a bug")
	seed = flag.Uint64("planted.seed", 0, "run without a bug with this seed only, and begin with it to look for bugs")
	plan = flag.String("planted.faults", "realistic", "the plan of faults")
	most = flag.Duration("planted.time", 10*time.Minute, "the time in which a bug has to be found")
)

// fastest are the bugs that are found fastest.
var fastest = []Bug{GeneratedName, NumberFromCache, ConflictDropped}

// TestMain builds the binary, unless COPPICE_BIN names one.
func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(logr.Discard()) // an operator whose writes fail logs a lot
	klog.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	// Operators with a client-go before 1.35 list at resourceVersion 0, which may answer with a former state.
	if err := os.Setenv("KUBE_FEATURE_WatchListClient", "false"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if os.Getenv("COPPICE_BIN") != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "planted-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "coppice")
	build := exec.CommandContext(context.Background(), "go", "build", "-o", binary, "./cmd/coppice")
	build.Dir = filepath.Join("..", "..", "..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build coppice: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv("COPPICE_BIN", binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// TestPlantedBugsAreFound runs the scenario with each bug, with one seed after the other, until a check fails.
func TestPlantedBugsAreFound(t *testing.T) {
	for _, d := range Bugs() {
		if !*all && !slices.Contains(fastest, d.Bug) {
			continue
		}
		t.Run(string(d.Bug), func(t *testing.T) {
			t.Parallel()
			plane := shared(t)
			ctx, cancel := context.WithTimeout(t.Context(), *most)
			defer cancel()
			begin := time.Now()
			first := max(*seed, 1)
			for seed := first; ; seed++ {
				err := scenario(ctx, t, plane, seed, d.Bug)
				found, ok := errors.AsType[finding](err)
				switch {
				case ok:
					t.Logf("found with seed %d, after %d runs and %.1f s, by: %s", seed, seed-first+1, time.Since(begin).Seconds(), found)
					return
				case ctx.Err() != nil:
					t.Fatalf("not found in %s and %d whole runs: %v", *most, seed-first, err)
				case err != nil:
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		})
	}
}

// TestWithoutBugsNothingIsFound runs the scenario without a bug: no check fails.
func TestWithoutBugsNothingIsFound(t *testing.T) {
	first, last := uint64(1), uint64(*runs)
	if *seed != 0 {
		first, last = *seed, *seed
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			plane := shared(t)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // far more than any plan of faults takes
			defer cancel()
			if err := scenario(ctx, t, plane, seed); err != nil {
				t.Fatalf("seed %d (-planted.seed=%d): %v", seed, seed, err)
			}
		})
	}
}

// shared returns a control plane that serves Pools.
func shared(t *testing.T) *coppicetest.Plane {
	t.Helper()
	definition, err := json.Marshal(Definition())
	if err != nil {
		t.Fatal(err)
	}
	return coppicetest.Shared(t, coppicetest.WithCRDBytes(definition))
}

// scenario runs the scenario on an empty control plane with the faults of a seed.
func scenario(ctx context.Context, t *testing.T, plane *coppicetest.Plane, seed uint64, bugs ...Bug) error {
	t.Helper()
	plane.Reset(t)
	plane.Faults(t, fmt.Sprintf("seed=%d; %s", seed, *plan))
	config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := newFixture(ctx, t, config, seed, bugs...)
	if err != nil {
		return err
	}
	return judge(t, w.live(ctx), plane.Anomalies(t))
}

// judge adds the anomalies that the control plane has seen to the result of a run. An anomaly alone is a finding, too.
func judge(t *testing.T, err error, anomalies []coppicetest.Anomaly) error {
	t.Helper()
	for _, a := range anomalies {
		t.Logf("an anomaly: %s", a)
	}
	if err == nil && len(anomalies) > 0 {
		return finding("an anomaly: " + anomalies[0].String())
	}
	return err
}
