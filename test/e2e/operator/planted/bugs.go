package planted

// Bug is a bug of the operator.
type Bug string

// The bugs. Bugs describes each.
const (
	GeneratedName      Bug = "GeneratedName"
	NewNameAfterError  Bug = "NewNameAfterError"
	CountedBeforeWrite Bug = "CountedBeforeWrite"
	DeletedByName      Bug = "DeletedByName"
	DeletedAgain       Bug = "DeletedAgain"
	OwnerNotCached     Bug = "OwnerNotCached"
	CleanupFromCache   Bug = "CleanupFromCache"
	BlindUpdate        Bug = "BlindUpdate"
	FinalizersPatched  Bug = "FinalizersPatched"
	HistoryPatched     Bug = "HistoryPatched"
	NumberFromCache    Bug = "NumberFromCache"
	ExistingIsOwn      Bug = "ExistingIsOwn"
	ConflictDropped    Bug = "ConflictDropped"
	ErrorDropped       Bug = "ErrorDropped"
	GenerationUnread   Bug = "GenerationUnread"
)

// Description describes a bug, with a public report about the same mistake.
type Description struct {
	Bug    Bug
	Does   string
	Report string // a URL
	Told   string // a summary of the report
}

// Bugs returns all bugs.
func Bugs() []Description { return append(bugsOfObjects(), bugsOfFields()...) }

// bugsOfObjects returns the bugs that create objects, or delete them, or do not.
func bugsOfObjects() []Description {
	return []Description{
		{
			Bug: GeneratedName, Does: "A member has a generated name, and is created again while the cache does not show it.",
			Report: "https://github.com/argoproj/argo-rollouts/issues/243",
			Told:   "Four AnalysisRuns were created for one Rollout: their names were generated, and the cache did not have them yet.",
		},
		{
			Bug: NewNameAfterError, Does: "A creation whose answer was lost counts as failed, and is tried again with another random name.",
			Report: "https://github.com/kubernetes-sigs/vsphere-csi-driver/issues/2507",
			Told:   "Creations of volumes timed out although they were carried out, and were tried again: volumes leaked.",
		},
		{
			Bug: CountedBeforeWrite, Does: "A member counts as created before the request, which fails: nobody tries again.",
			Report: "https://github.com/kubernetes/kubernetes/issues/67662",
			Told:   "The creation of a pod timed out, the ReplicaSet controller expected the pod nevertheless, and never tried again.",
		},
		{
			Bug: DeletedByName, Does: "An order is deleted by its name after a stale read. A new one with that name goes.",
			Report: "https://github.com/percona/percona-xtradb-cluster-operator/pull/986",
			Told:   "StatefulSets, Services and volume claims were deleted by name after stale reads; the change deletes them by UID.",
		},
		{
			Bug: DeletedAgain, Does: "A Pool shrinks by a number from a stale list, and members that are gone do not count.",
			Report: "https://github.com/ray-project/kuberay/issues/1936",
			Told:   "A cluster that shrank by one worker lost more of them, which were created again.",
		},
		{
			Bug: OwnerNotCached, Does: "An order is deleted as an orphan because its Pool is not in the cache yet.",
			Report: "https://github.com/kubernetes/kubernetes/issues/88097",
			Told:   "During an upgrade, objects were collected whose owners existed; the reporter suspects owners that were not cached yet.",
		},
		{
			Bug: CleanupFromCache, Does: "The finalizer goes after a cleanup that has listed the cache, which does not show the record yet.",
			Report: "https://github.com/pingcap/tidb-operator/issues/6532",
			Told:   "The finalizer is removed if no resource is found in the cache, so that some may never be deleted.",
		},
	}
}

// bugsOfFields returns the bugs that write something wrong, or do not write it.
func bugsOfFields() []Description {
	return []Description{
		{
			Bug: BlindUpdate, Does: "The directory is updated from the cache without a resourceVersion: entries of others are lost.",
			Report: "https://github.com/infinispan/infinispan-operator/issues/2166",
			Told:   "A patch from a stale copy had no resourceVersion, and overwrote newer fields.",
		},
		{
			Bug: FinalizersPatched, Does: "A merge patch from a stale copy replaces the list of finalizers: one of somebody else is lost.",
			Report: "https://github.com/kubernetes-sigs/kernel-module-management/pull/1343",
			Told:   "A merge patch sends the finalizers whole, and takes off one that another controller has added since the read.",
		},
		{
			Bug: HistoryPatched, Does: "A merge patch from a stale copy replaces the served orders in the status: one is lost.",
			Report: "https://github.com/akuity/kargo/pull/6581",
			Told:   "A reconciliation with a stale copy patched the whole map of holds, and lost the one of the reconciliation before.",
		},
		{
			Bug: NumberFromCache, Does: "Two Pools have the same number, because the cache does not show the first one's yet.",
			Report: "https://github.com/kubernetes-sigs/cluster-api-ipam-provider-in-cluster/pull/338",
			Told:   "The addresses in use were listed from the cache, and an address was allocated twice.",
		},
		{
			Bug: ExistingIsOwn, Does: "A claim that exists already counts as the Pool's own, although another Pool has made it.",
			Report: "https://github.com/NVIDIA/cluster-readiness-engine/pull/239",
			Told:   "On AlreadyExists, the controllers took whatever object had the name for theirs, and deleted it later.",
		},
		{
			Bug: ConflictDropped, Does: "A conflict is taken for a sign that an event comes. The event is filtered out, and the status stays wrong.",
			Report: "https://github.com/Azure/azure-service-operator/pull/2719",
			Told:   "Conflicts were ignored because an event would follow; changes that were not watched caused none.",
		},
		{
			Bug: ErrorDropped, Does: "An error of the server, other than a conflict, is not tried again.",
			Report: "https://github.com/kubernetes-sigs/node-readiness-controller/issues/228",
			Told:   "Errors were logged and not returned, so that nothing was tried again until an unrelated update.",
		},
		{
			Bug: GenerationUnread, Does: "A status is written on a fresh copy: it claims a generation whose spec was not reconciled.",
			Report: "https://github.com/knative/serving/pull/6162",
			Told:   "Updates of the status were tried again on a fresh copy; the review asks which generation the status is about then.",
		},
	}
}
