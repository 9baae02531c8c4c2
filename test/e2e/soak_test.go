package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

var soak = flag.Duration("soak", 0, "how long TestSoak runs; it is skipped if this is zero")

const (
	// soakParts are the parts of a soak. In the first one the control plane is killed and stopped; the sizes of the second one
	// are compared with those of the last one, and the heap of the middle one: Events are kept for an hour.
	soakParts = 12
	// soakGroups is the number of groups of custom resources, which come back. The metrics of k8s.io/apiserver have series for
	// each group that was ever there, 53 kB, as those of kube-apiserver do.
	soakGroups = 20
)

// TestSoak makes a control plane work for hours: rollouts, cascades of all policies, definitions that come and go,
// namespaces that are emptied, beside faults of the level mild, clients that are killed, and at first restarts. At the end of
// each round nothing is left of it, and what nobody deletes is still there. At the end its memory, goroutines and open files are
// those of an earlier time.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("make soak runs it for two hours")
	}
	s := &soaking{data: t.TempDir()}
	s.start(t)
	t.Cleanup(func() {
		if err := s.plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.k.run(t, "create", "namespace", "kept")
	s.k.apply(t, "kept", configMap("owner", ""))
	owner := ownerOf("v1", "ConfigMap", "owner", uidOf(t, s.k, "kept", "configmap/owner"), true)
	s.k.apply(t, "kept", configMap("a", owner)+configMap("b", owner))

	var byPart [soakParts][]sizes
	n := 0
	for part := range soakParts {
		over, end := context.WithTimeout(t.Context(), *soak/soakParts)
		defer end()
		for ; over.Err() == nil; n++ {
			if part == 0 && n > 0 {
				s.restart(t, n)
			}
			s.round(t, n)
			now := s.sizes(t)
			t.Logf("part %d of %d, round %d: %s", part+1, soakParts, n, now)
			byPart[part] = append(byPart[part], now)
		}
	}
	for part, rounds := range byPart {
		if len(rounds) == 0 {
			t.Fatalf("%s are too short: no round has ended in part %d", *soak, part+1)
		}
	}
	before, after, noise := medians(byPart[1]), medians(byPart[soakParts-1]), sizes{10_000, 100, 30}
	before[0] = medians(byPart[soakParts/2])[0]
	t.Logf("early: %s; at the end: %s", before, after)
	for i, name := range sizeNames() {
		if grown := after[i] - before[i]; grown > before[i]/5+noise[i] {
			t.Errorf("%s: %d early, %d at the end", name, before[i], after[i])
		}
	}
}

// soaking is a control plane under test.
type soaking struct {
	data  string
	plane *plane
	k     kubectl
}

func (s *soaking) start(t *testing.T) {
	t.Helper()
	p, err := start("--data-dir", s.data, "--secure-port=0", "--allow-faults")
	if err != nil {
		t.Fatal(err)
	}
	s.plane, s.k = p, ourKubectl(p)
}

// restart kills the control plane or stops it, and starts it again on its data.
func (s *soaking) restart(t *testing.T, n int) {
	t.Helper()
	if n%2 == 0 {
		s.plane.kill(t)
	} else if err := s.plane.Stop(); err != nil {
		t.Error(err)
	}
	s.start(t)
}

// round does all kinds of work once, in a namespace of its own.
func (s *soaking) round(t *testing.T, n int) {
	t.Helper()
	k, namespace, group := s.k, fmt.Sprintf("round-%d", n), fmt.Sprintf("round-%d.example.com", n%soakGroups)
	client := startCollector(t, s.plane) // a client with many watches, which dies
	k.run(t, "create", "namespace", namespace)
	k.run(t, "wait", "--for=create", "-n", namespace, "serviceaccount/default", "--timeout=2m")
	for _, name := range []string{"background", "foreground", "orphan"} {
		k.run(t, "create", "-n", namespace, "deployment", name, "--image=i", "--replicas=5")
	}
	k.run(t, "create", "-n", namespace, "job", "once", "--image=i", "--", "true")
	k.apply(t, namespace, configMap("owner", ""))
	owner := ownerOf("v1", "ConfigMap", "owner", uidOf(t, k, namespace, "configmap/owner"), true)
	var dependents strings.Builder
	for i := range 300 {
		dependents.WriteString(configMap(fmt.Sprint("dependent-", i), owner))
	}
	k.apply(t, namespace, dependents.String())
	k.apply(t, "default", widgets(group))
	k.run(t, "wait", "--for=condition=Established", "crd/widgets."+group, "--timeout=2m")
	k.apply(t, namespace, widget(group, "a", owner)+widget(group, "b", ""))
	for _, name := range []string{"background", "foreground", "orphan"} {
		k.run(t, "rollout", "status", "-n", namespace, "deployment/"+name, "--timeout=3m")
	}
	k.run(t, "set", "image", "-n", namespace, "deployment/background", "*=j")
	if err := client.command.Process.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	<-client.exited

	s.faults(t, fmt.Sprintf("seed=%d; mild", n+1))
	s.insist(t, "delete", "-n", namespace, "configmap/owner", "--wait=false")
	for _, policy := range []string{"background", "foreground", "orphan"} {
		s.insist(t, "delete", "-n", namespace, "deployment/"+policy, "--cascade="+policy, "--wait=false")
	}
	s.insist(t, "delete", "crd", "widgets."+group, "--wait=false")
	s.insist(t, "delete", "namespace", namespace, "--wait=false")
	s.faults(t, "")
	k.run(t, "wait", "--for=delete", "namespace/"+namespace, "crd/widgets."+group, "--timeout=3m")
	k.settle(t)
	if got := own(k.names(t, "kept", "configmaps")); !slices.Equal(got, []string{"configmap/a", "configmap/b", "configmap/owner"}) {
		t.Fatalf("round %d: %v are left of what nobody deletes", n, got)
	}
}

// insist repeats a deletion until the faults let it through.
func (s *soaking) insist(t *testing.T, args ...string) {
	t.Helper()
	eventually.Agrees(t, func() string {
		_, stderr, err := s.k.try(t, "", args...)
		if err == nil || strings.Contains(stderr, "NotFound") {
			return ""
		}
		return stderr
	})
}

// faults sets the faults of the control plane, or ends them.
func (s *soaking) faults(t *testing.T, plan string) {
	t.Helper()
	if code, body := s.plane.curl(t, "-X", "POST", "--data", plan, s.plane.server+"/coppice/v1/faults"); code != "200" {
		t.Fatalf("set faults %q: %s %s", plan, code, body)
	}
}

// sizes are those of a process: the heap in use after a collection in kB, goroutines, open files. Its resident memory says
// less: after work it has garbage, which is returned when the process has been idle for some seconds.
type sizes [3]int

func sizeNames() []string { return []string{"heap in kB", "goroutines", "open files"} }

func (s sizes) String() string {
	return fmt.Sprintf("%d kB of heap, %d goroutines, %d open files", s[0], s[1], s[2])
}

// sizes returns those of the control plane.
func (s *soaking) sizes(t *testing.T) sizes {
	t.Helper()
	files, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(s.plane.PID()), "fd"))
	if err != nil {
		t.Fatal(err)
	}
	if code, body := s.plane.curl(t, "--output", os.DevNull, s.plane.server+"/debug/pprof/heap?gc=1"); code != "200" {
		t.Fatalf("collect the heap: %s %s", code, body)
	}
	_, metrics := s.plane.curl(t, s.plane.server+"/metrics")
	value := func(metric string) int {
		_, after, _ := strings.Cut(metrics, "\n"+metric+" ")
		text, _, _ := strings.Cut(after, "\n")
		number, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("%s: %v", metric, err)
		}
		return int(number)
	}
	return sizes{value("go_memstats_heap_alloc_bytes") / 1000, value("go_goroutines"), len(files)}
}

// medians returns the median of each size.
func medians(all []sizes) (m sizes) {
	for i := range m {
		var values []int
		for _, s := range all {
			values = append(values, s[i])
		}
		if slices.Sort(values); len(values) > 0 {
			m[i] = values[len(values)/2]
		}
	}
	return m
}
