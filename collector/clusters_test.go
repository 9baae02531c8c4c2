package collector_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/collector"
	"github.com/coppice-dev/coppice/internal/testing/wireserver"
)

var (
	clustersFlag = flag.Int("clusters", 0, "collect this many clusters, and print memory and goroutines; 0: do not")
	objectsFlag  = flag.Int("clusters.objects", 1000, "objects of each of them")
	kindsFlag    = flag.Int("clusters.kinds", 30, "kinds that each of them serves")
)

// serveVariable makes the test binary the process of the servers; its value is "clusters objects kinds".
const serveVariable = "COPPICE_TEST_SERVE_CLUSTERS"

// serve serves clusters on loopback, prints their addresses, and ends with its input.
func serve(what string) {
	var clusters, objects, kinds int
	if _, err := fmt.Sscan(what, &clusters, &objects, &kinds); err != nil {
		panic(err)
	}
	for range clusters {
		server := httptest.NewUnstartedServer(populated(objects, kinds))
		server.EnableHTTP2 = true
		server.StartTLS()
		fmt.Println(server.URL)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// populated returns a server of so many objects: owners with four dependents each.
func populated(objects, kinds int) *wireserver.Server {
	resources := []wireserver.Resource{{Name: "configmaps", Kind: "ConfigMap"}, {Name: "secrets", Kind: "Secret"}}
	for i := len(resources) + 1; i < kinds; i++ {
		resources = append(resources, wireserver.Resource{Group: "example.com", Name: fmt.Sprintf("kinds%d", i), Kind: fmt.Sprintf("Kind%d", i)})
	}
	s := wireserver.New(resources...)
	for i := range objects / 5 {
		family(s, types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)), 4)
	}
	return s
}

// start starts the process of the servers, and returns their addresses.
func start(t *testing.T) []string {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %d", serveVariable, *clustersFlag, *objectsFlag, *kindsFlag))
	c.Stderr = os.Stderr
	input, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = c.Wait()
	})
	var addresses []string
	for lines := bufio.NewScanner(output); len(addresses) < *clustersFlag && lines.Scan(); {
		addresses = append(addresses, lines.Text())
	}
	if len(addresses) != *clustersFlag {
		t.Fatalf("the servers have %d addresses", len(addresses))
	}
	return addresses
}

// TestManyClustersSleepInOneProcess collects many clusters, whose servers are in another process, waits until all sleep, and prints
// their cost. They are reached by TLS and HTTP/2, as API servers are.
func TestManyClustersSleepInOneProcess(t *testing.T) {
	if *clustersFlag == 0 {
		t.Skip("give -clusters=100: half a minute")
	}
	addresses := start(t)
	goroutines, _, rss := usage(t)
	ctx, cancel := context.WithCancel(t.Context())
	p := collector.NewPool(collector.PoolOptions{IdleAfter: 5 * time.Second})
	for i, address := range addresses {
		if err := p.Add(strconv.Itoa(i), &rest.Config{Host: address, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- p.Run(ctx) }()
	defer func() {
		cancel()
		<-ended
	}()
	most := 0
	for awake := len(addresses); awake > 0; {
		time.Sleep(time.Second)
		awake = 0
		for _, name := range p.Clusters() {
			if !isAsleep(p, name) {
				awake++
			}
		}
		most = max(most, runtime.NumGoroutine()-goroutines)
		if time.Since(began) > 10*time.Minute {
			t.Fatalf("%d clusters are awake after %v", awake, time.Since(began))
		}
	}
	t.Logf("%d clusters of %d objects and %d kinds: all asleep after %.0f s; until then up to %d goroutines",
		len(addresses), *objectsFlag, *kindsFlag, time.Since(began).Seconds(), most)
	for _, name := range p.Clusters() {
		if s := p.Cluster(name).Status(); s.Graph.Objects != *objectsFlag/5*5+1 {
			t.Fatalf("cluster %s has %d objects", name, s.Graph.Objects)
		}
	}
	now, heap, rssNow := usage(t)
	each := float64(now-goroutines-1) / float64(len(addresses)) // one runs the pool
	t.Logf("asleep: %.2f goroutines for each cluster; %.1f MB of heap in use after a garbage collection; RssAnon has grown by %.1f MB",
		each, float64(heap)/1e6, float64(rssNow-rss)/1e6)
	if each > 3 {
		stacks := make([]byte, 20000)
		t.Errorf("more than 3 goroutines for each cluster:\n%s", stacks[:runtime.Stack(stacks, true)])
	}
}

// usage returns the goroutines, the heap in use after a garbage collection, and the anonymous memory, in bytes, of
// this process, after it has returned free memory to the system.
func usage(t *testing.T) (goroutines int, heap uint64, rss int64) {
	t.Helper()
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("there is no /proc here")
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kilobytes, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			rss = kilobytes * 1024
		}
	}
	return runtime.NumGoroutine(), stats.HeapInuse, rss
}
