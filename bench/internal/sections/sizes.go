package sections

import "time"

// Sizes are the sizes of the measurements.
type Sizes struct {
	Quick bool // the figures mean nothing

	Clients        int // that write at the same time
	Objects        int // that are created, listed, updated and deleted
	Watchers       int // of a change whose lag is measured
	Changes        int
	Namespaces     int
	Dependents     int   // of a cascade
	FewDependents  int   // of a cascade of a slow collector
	Levels         int   // of a chain of owners
	Crowd          int   // objects of the sections scale and memory
	Million        int   // dependents of one owner, in the section million
	CrowdOwners    int   // owners of the objects of scale
	CensusPart     int   // of the objects of the section tools, one in so many
	FakeOwners     int   // of one object
	LongTexts      int   // objects of the section texts
	Definitions    []int // of custom resources
	Bystanders     int   // cascades beside it
	Deployments    int   // of three pods each
	Nodes          int   // of the section nodes
	Pods           int
	PodsPerSet     int           // pods of one of its Deployments
	Multitudes     []int         // objects of the section large, from few to many
	Compared       int           // the largest of these with which upstream's collector is measured
	EventRate      int           // changes in a second, at the largest of these numbers
	EventSeconds   int           // for so long
	Steady         time.Duration // before the memory of a collector is read that has read all objects
	Idle           time.Duration // before memory is read
	Settle         time.Duration // before memory is read that should have been released
	DiscoveryPhase time.Duration // over which the runs of the section crd are spread
}

// Full returns the sizes of the figures.
func Full() Sizes {
	return Sizes{
		Clients: 32, Objects: 10_000, Watchers: 1000, Changes: 50, Namespaces: 3,
		Dependents: 10_000, FewDependents: 200, Levels: 1000, Crowd: 100_000, Million: 1_000_000, CrowdOwners: 1000, CensusPart: 1,
		FakeOwners: 10_000, LongTexts: 400, Bystanders: 300, Definitions: []int{300, 900},
		Deployments: 300, Nodes: 1000, Pods: 20_000, PodsPerSet: 100,
		Multitudes: []int{10_000, 100_000, 1_000_000, 10_000_000}, Compared: 1_000_000,
		EventRate: 30_000, EventSeconds: 20, Steady: 30 * time.Second,
		Idle: 10 * time.Second, Settle: time.Minute, DiscoveryPhase: 30 * time.Second,
	}
}

// Quick returns small sizes that only check that the sections work; the figures mean nothing.
func Quick() Sizes {
	return Sizes{
		Quick: true, Clients: 8, Objects: 200, Watchers: 20, Changes: 5, Namespaces: 1,
		Dependents: 200, FewDependents: 30, Levels: 20, Crowd: 1000, Million: 2000, CrowdOwners: 10, CensusPart: 200,
		FakeOwners: 200, LongTexts: 20, Bystanders: 10, Definitions: []int{20},
		Deployments: 5, Nodes: 3, Pods: 60, PodsPerSet: 20,
		Multitudes: []int{2000, 10_000}, Compared: 10_000, EventRate: 1000, EventSeconds: 2, Steady: time.Second,
		Idle: time.Second, Settle: time.Second, DiscoveryPhase: time.Second,
	}
}
