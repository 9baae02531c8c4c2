package ownership

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"
)

var benchmarkSizes = []int{1e4, 1e5, 1e6}

// population makes up n objects like those of a cluster: Deployments with one ReplicaSet each,
// which has eight Pods, in two hundred namespaces. Names and UIDs look like real ones. Owners
// come before dependents.
func population(n int) []Object {
	random := rand.New(rand.NewPCG(1, 2))
	objects := make([]Object, 0, n)
	for app := 0; len(objects) < n; app++ {
		namespace := fmt.Sprintf("team-%03d", app%200)
		name := fmt.Sprintf("service-%06d", app)
		add := func(kind Kind, name string, owner ...Reference) Reference {
			o := Object{
				UID: randomUUID(random), Kind: kind, Namespace: namespace, Name: name,
				ResourceVersion: strconv.Itoa(1000 + len(objects)), Owners: owner,
			}
			if len(objects) < n {
				objects = append(objects, o)
			}
			version := "v1"
			if kind.Group != "" {
				version = kind.Group + "/v1"
			}
			return Reference{
				APIVersion: version, Kind: kind.Kind, Name: name, UID: o.UID,
				Controller: True, BlockOwnerDeletion: True,
			}
		}
		deployment := add(Kind{"apps", "Deployment"}, name)
		name += fmt.Sprintf("-%010x", random.Uint64N(1<<40))
		set := add(Kind{"apps", "ReplicaSet"}, name, deployment)
		for range 8 {
			add(Kind{"", "Pod"}, name+fmt.Sprintf("-%05x", random.Uint64N(1<<20)), set)
		}
	}
	return objects
}

func randomUUID(random *rand.Rand) UID {
	var key [16]byte
	for n := range key {
		key[n] = byte(random.Uint32())
	}
	return formatUUID(key)
}

func build(objects []Object) *Graph {
	g := New()
	g.SetScope(Kind{"apps", "Deployment"}, Namespaced)
	g.SetScope(Kind{"apps", "ReplicaSet"}, Namespaced)
	g.SetScope(Kind{"", "Pod"}, Namespaced)
	for _, o := range objects {
		g.Observe(o)
	}
	return g
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// BenchmarkBuild observes whole populations, and reports their size in the heap, names
// included. The target is 120 bytes per object at a million.
func BenchmarkBuild(b *testing.B) {
	for _, n := range benchmarkSizes {
		objects := population(n)
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			before := heap()
			var g *Graph
			for b.Loop() {
				g = nil //nolint:ineffassign // lets the one before go
				g = build(objects)
			}
			b.ReportMetric(float64(heap()-before)/float64(n), "bytes/object")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/object")
			runtime.KeepAlive(g)
		})
	}
}

// BenchmarkBuildReversed is the worst order: every dependent before its owner.
func BenchmarkBuildReversed(b *testing.B) {
	objects := population(1e5)
	reversed := make([]Object, 0, len(objects))
	for n := range objects {
		reversed = append(reversed, objects[len(objects)-1-n])
	}
	for b.Loop() {
		build(reversed)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(objects)), "ns/object")
}

// BenchmarkObserve repeats observations, as a feed does (GB-06).
func BenchmarkObserve(b *testing.B) {
	for _, n := range benchmarkSizes {
		objects := population(n)
		g := build(objects)
		b.Run(fmt.Sprintf("unchanged/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				g.Observe(objects[i*7919%n])
			}
		})
		b.Run(fmt.Sprintf("version/%d", n), func(b *testing.B) {
			versions := make([]string, 1<<16)
			for i := range versions {
				versions[i] = strconv.Itoa(2_000_000 + i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				o := objects[i*7919%n]
				o.ResourceVersion = versions[i%len(versions)]
				g.Observe(o)
			}
		})
		b.Run(fmt.Sprintf("new/%d", n), func(b *testing.B) {
			o := objects[n-1]
			b.ReportAllocs()
			for b.Loop() {
				g.Forget(o.UID, "")
				g.Observe(o)
			}
		})
	}
}

// BenchmarkForget is the cascade of a background deletion: an owner of many is deleted.
func BenchmarkForget(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			owner := Object{UID: "owner", Kind: Kind{"", "ConfigMap"}, Namespace: "default", Name: "owner", ResourceVersion: "1"}
			g := New()
			g.Observe(owner)
			random := rand.New(rand.NewPCG(1, 2))
			for i := range n {
				g.Observe(Object{
					UID: randomUUID(random), Kind: Kind{"", "Pod"}, Namespace: "default", Name: fmt.Sprint(i), ResourceVersion: "1",
					Owners: []Reference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner"}},
				})
			}
			b.ReportAllocs()
			for b.Loop() {
				g.Forget("owner", "")
				g.Observe(owner)
			}
		})
	}
}

// BenchmarkForegroundChain builds a chain of owners, all in foreground deletion, in
// the order that is worst for the search of cycles: from the middle outwards.
func BenchmarkForegroundChain(b *testing.B) {
	const n = 100_000
	uid := func(i int) UID { return UID(fmt.Sprintf("%08x-0000-4000-8000-000000000000", i)) }
	objects := make([]Object, n)
	for i := range objects {
		objects[i] = Object{
			UID: uid(i), Kind: Kind{"", "Pod"}, Namespace: "default", Name: "p", ResourceVersion: "1",
			Phase: Foreground, Finalizers: []string{FinalizerForeground},
			Owners: []Reference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: uid(i + 1), BlockOwnerDeletion: True}},
		}
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
	for b.Loop() {
		build(objects)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/object")
}

// BenchmarkClosure finds the closures of single deletions, and of a namespace (R32).
func BenchmarkClosure(b *testing.B) {
	const size = 134_000
	objects := population(size)
	// A namespace with a tenth of all objects, beside the two hundred others.
	for n := range objects {
		if n%10 == 9 {
			objects[n].Namespace, objects[n].Owners = "large", nil
		}
	}
	g := build(objects)
	for name, roots := range map[string]func(i int) Roots{
		"object":    func(i int) Roots { return Roots{UIDs: []UID{objects[i*7919%size].UID}} },
		"namespace": func(int) Roots { return Roots{Namespace: "large"} },
		"kind":      func(int) Roots { return Roots{Kind: Kind{"apps", "ReplicaSet"}} },
		"all pods":  func(int) Roots { return Roots{Kind: Kind{"", "Pod"}} },
	} {
		b.Run(name, func(b *testing.B) {
			found := 0
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				began := time.Now()
				for range g.Closure(roots(i)) {
					found++
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(found)/float64(b.N), "objects")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}
