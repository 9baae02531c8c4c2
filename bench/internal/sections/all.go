package sections

import (
	"context"
	"slices"

	"github.com/coppice-dev/coppice/bench/internal/report"
)

// All returns the sections in the order of the report.
func All() []Section { return slices.Concat(small(), crowded()) }

// small returns the sections with few objects.
func small() []Section {
	return []Section{
		section("start", "Start and idle memory", 0, start,
			`From the start of the first process until the last one is ready, and until an object whose owner does not exist has been
			collected. Upstream is etcd, kube-apiserver and kube-controller-manager with its default controllers; coppice is coppice up with
			its default controllers, its scheduler and a simulated node. RssAnon is resident memory that is not pages of files; PSS is all
			resident memory, with shared pages divided among those that share them.`),
		section("reset", "A control plane for each test", 0, reset,
			`Each of 20 tests makes 100 ConfigMaps that a finalizer holds. For the next one, coppice resets its control plane, which syncs nothing to disk
			and runs the collector and the namespace controller, as coppicetest starts it; upstream starts etcd and kube-apiserver, as envtest does.`),
		section("requests", "Throughput of the API server", 0, requests,
			`Small objects (512 bytes besides their metadata) by 32 clients, each write on disk when it is acknowledged; lists of all 10 000 objects
			by one client; and events to 100 watches while 32 clients update. The clients are cheap ones (bench/internal/rawclient), and share the
			cores with the server. The processor time includes the server and its etcd. Upstream is kube-apiserver with etcd, without
			controllers; coppice is coppice up with everything that it runs by default.`),
		section("watch", "Watch lag", 0, watchLag,
			`One object is changed 50 times, with 1 000 watches open: from the request until half of the watches, and 99 of 100, have the event.`),
		section("namespace", "An empty namespace", 0, emptyNamespace,
			`From DELETE until the namespace is gone. It has only what controllers put into each namespace.`),
		section("cascade", "Cascades", 0, cascades,
			`From the DELETE of an owner until the watch event after which nothing is left to do. The first column is coppice up; the others are
			collectors that take turns on one kube-apiserver: kube-controller-manager's as it comes, the same with --kube-api-qps=5000
			--kube-api-burst=10000 --concurrent-gc-syncs=50, and coppice collect. Plain DELETE is how many objects that server deletes in a second
			for 32 clients which just delete them, in the same run: coppice up with its collector, kube-apiserver with none. Plain PATCH is how many of these
			clients' patches, like the collector's, remove the owner of an object. Ratios are taken within each run.`),
		section("chain", "A chain of owners", 0, chains,
			`From the foreground DELETE of the first of 1 000 objects, each of which owns the next one and waits for it, until all are gone, divided by
			their number. kube-controller-manager runs its collector only, with its limits lifted.`),
	}
}

// crowded returns the sections with many objects, and those about single questions.
func crowded() []Section {
	return []Section{
		section("scale", "100 000 objects", 2, scale,
			`ConfigMaps with 512 bytes of data, owned by 1 000 others. The memory is the growth of all processes. The start is on the
			data directory with these objects, and idle memory is measured after the start. kube-controller-manager runs its collector only, with its limits lifted.`),
		section("large", "Ten million objects", 1, large,
			`A synthetic API server (bench/internal/crowd) makes up objects of 60 kinds, in realistic proportions, with 0.6 to 1 kB of metadata each.
			It judges each DELETE: the deletion of an object whose owner exists, or that has no owner, fails the section. Ten owners do not exist
			when a collector starts. The start ends when the last of their dependents is deleted. Exponents are fitted to all sizes, by least
			squares of the logarithms. A decision begins with the deletion of an owner, and ends when the server gets the DELETE of a dependent;
			other objects change meanwhile. The last measurement kills the leader of two collectors, and begins when the Lease
			expires. kube-controller-manager runs its collector only, with its limits lifted.`),
		section("memory", "Memory comes back", 2, memoryComesBack,
			`100 000 ConfigMaps with 1 kB of data, created by 32 clients and collected in the background after their one owner: the most memory that
			all processes have at one time until the last one is gone, and their memory a minute later. Upstream is etcd, kube-apiserver and
			kube-controller-manager, which runs its collector only, with its limits lifted.`),
		section("million", "1 000 000 objects", 1, million,
			`A million ConfigMaps with 512 bytes of data, created by 32 clients and owned by one other: the start on the data directory with these objects,
			the memory a minute later, and the background cascade of all of them, with the most memory that the process has meanwhile, and its
			memory a minute later. coppice up only.`),
		section("tools", "The tools, on a large cluster", 2, tools,
			`Objects in the shape of a published census: 19 924 Deployments, 43 033 ReplicaSets, 29 455 Pods, 19 861 Jobs, 300 namespaces, 134 000
			objects in all. Each command is measured from its start to its end, with the most resident memory that its process has, whether it reads
			the whole cluster anew or asks the running collector; the answers are from the collector alone, the median of nine.`),
		section("crd", "A new custom resource", 3, newResource,
			`From the creation of a CustomResourceDefinition until the collector has deleted an object of it, whose owner was deleted at once.
			Upstream's collector discovers resources every 30 seconds; the runs begin at different times in between.`),
		section("crds", "Many custom resources", 3, manyDefinitions,
			`CustomResourceDefinitions of 120 described fields each, created by 8 clients, and an object of the last one whose owner does not exist.
			Nobody but the collector uses them otherwise. The memory is that of all processes, idle; of upstream's controllers, only the collector runs.`),
		section("owners", "10 000 fake owners", 3, fakeOwners,
			`What the cascades of one namespace suffer when an object with 10 000 owners that do not exist is created in another: p99 of the time from
			an owner's DELETE until its one dependent is gone, one cascade after the other, compared with an object as large that has no owners.
			There are 300 cascades. Upstream's collector has its limits lifted: as it comes, it sends 20 requests a second, and the one object
			takes these for many minutes. On kube-apiserver only: coppice up refuses an object with more than 64 owner references.`),
		section("texts", "Long texts", 2, longTexts,
			`400 ConfigMaps, each with an owner that does not exist and whose UID has a megabyte, are created by 4 clients and collected: the memory of
			coppice up and of coppice collect before, at once, and 10 s after the last one. Upstream's collector is not measured.`),
		section("workloads", "Deployments on simulated nodes", 2, workloads,
			`300 Deployments of 3 pods each, created by 32 clients until all pods are ready, and deleted until all that they owned is gone; and who
			sends which requests, from 0.05 for each pod on. In the same run, kwok does the same on as many nodes of the same capacity, with etcd,
			kube-apiserver, kube-controller-manager with its default controllers, and kube-scheduler: kwokctl create cluster --disable-qps-limits starts
			these, and gives them the same limits. Its stages make a pod ready as soon as it is bound, and remove it as soon as it is deleted. kwok has
			64 workers, not 4; kube-controller-manager has 50 for Deployments, for ReplicaSets and for garbage, not 5, 5 and 20. The processor time and
			the memory are those of all processes. Ratios are taken within each run.`),
		section("nodes", "20 000 pods", 1, simulatedNodes,
			`1 000 simulated nodes, 20 000 pods of 200 Deployments and etcd in one process. The heap is the memory in use after a collection.`),
		section("packages", "Benchmarks of packages", 1, packages,
			`The output of go test -bench. Barrier is the cost of the proof, before a foreground or orphan
			deletion is completed, that no dependent was missed: a thousand owners deleted at once, with and without.`),
	}
}

func section(name, title string, mostRuns int, measure func(context.Context, *Bench) error, about string) Section {
	return Section{report.Section{Name: name, Title: title, About: about}, mostRuns, measure}
}
