package envtest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

var (
	starts    = flag.Int("starts", 3, "how many control planes are started, one after the other")
	alongside = flag.Int("alongside", 2, "how many control planes run at the same time")
)

// upstreamVariable names a directory with upstream's kube-apiserver and etcd.
const upstreamVariable = "COPPICE_UPSTREAM_ASSETS"

// A control plane starts and stops many times without an error. The log has the time and memory of a
// start, and those with upstream's assets if there are any.
func TestManyStartsWithoutAnError(t *testing.T) {
	t.Run("coppice", startOften)
	t.Run("upstream", func(t *testing.T) {
		dir := os.Getenv(upstreamVariable)
		if dir == "" {
			t.Skip(upstreamVariable + " names no directory")
		}
		t.Setenv("KUBEBUILDER_ASSETS", dir)
		startOften(t)
	})
}

func startOften(t *testing.T) {
	needProcesses(t)
	var took []time.Duration
	var memory []int
	for i := range *starts {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			// Its own directory distinguishes the processes of this control plane from all others.
			temporary := t.TempDir()
			t.Setenv("TMPDIR", temporary)
			begun := time.Now()
			start(t, &envtest.Environment{})
			took = append(took, time.Since(begun))
			memory = append(memory, anonymousMemory(t, temporary))
		})
	}
	slices.Sort(took)
	slices.Sort(memory)
	if len(took) == 0 {
		t.Fatalf("none of %d has started", *starts)
	}
	t.Logf("%d of %d started", len(took), *starts)
	t.Logf("start: p50 %v, p95 %v", took[len(took)/2], took[len(took)*95/100])
	t.Logf("RssAnon of both processes: p50 %d kB, most %d kB", memory[len(memory)/2], memory[len(memory)-1])
}

// anonymousMemory returns the RssAnon, in kB, of the processes that have a directory in their flags.
func anonymousMemory(t *testing.T, dir string) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	total, found := 0, 0
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(line), dir) { // a process may end meanwhile
			continue
		}
		status, err := os.ReadFile(filepath.Join(filepath.Dir(file), "status"))
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(status), "RssAnon:")
		var kilobytes int
		if _, err := fmt.Sscan(after, &kilobytes); err != nil {
			t.Fatalf("RssAnon in %s: %v", file, err)
		}
		total, found = total+kilobytes, found+1
	}
	if found != 2 {
		t.Errorf("%d processes run, want an etcd and a kube-apiserver", found)
	}
	return total
}

// Control planes that run at the same time are all ready, and each collects its own garbage.
func TestControlPlanesCollectTheirOwnGarbage(t *testing.T) {
	t.Run("planes", func(t *testing.T) {
		for i := range *alongside {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				environment := collecting()
				c := newClient(t, start(t, environment))
				owner := configMap("owner")
				create(t, c, owner)
				dependent := configMap("dependent", ownerReference(owner))
				create(t, c, dependent)
				if err := c.Delete(t.Context(), owner); err != nil {
					t.Fatal(err)
				}
				gone(t, c, dependent)
			})
		}
	})
}
