package replicaset

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// pod returns a pod in the state that the words describe.
func pod(name string, words ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"}, CreationTimestamp: metav1.NewTime(epoch)},
		Spec:       corev1.PodSpec{NodeName: "node"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(epoch)}
	for _, word := range words {
		switch word {
		case "unbound":
			p.Spec.NodeName, p.Status.Phase, ready.Status = "", corev1.PodPending, corev1.ConditionFalse
		case "pending":
			p.Status.Phase, ready.Status = corev1.PodPending, corev1.ConditionFalse
		case "unready":
			ready.Status = corev1.ConditionFalse
		case "failed":
			p.Status.Phase, ready.Status = corev1.PodFailed, corev1.ConditionFalse
		case "succeeded":
			p.Status.Phase, ready.Status = corev1.PodSucceeded, corev1.ConditionFalse
		case "terminating":
			p.DeletionTimestamp = &metav1.Time{Time: epoch}
		case "cheap":
			p.Annotations = map[string]string{corev1.PodDeletionCost: "-1"}
		case "restarted":
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 3}}
		case "young":
			p.CreationTimestamp = metav1.NewTime(epoch.Add(time.Minute))
		case "just-ready":
			ready.LastTransitionTime = metav1.NewTime(epoch.Add(time.Hour - time.Second))
		case "elsewhere":
			p.Spec.NodeName = "other"
		case "relabelled":
			p.Labels = map[string]string{"app": "web", "version": "old"}
		default:
			panic(word)
		}
	}
	p.Status.Conditions = []corev1.PodCondition{ready}
	return p
}

func set(replicas int32) Set {
	return Set{Replicas: replicas, Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}}
}

func TestPlanMakesUpForMissingPodsAndDeletesSurplusOnes(t *testing.T) {
	ending := set(3)
	ending.Ending = true
	for name, test := range map[string]struct {
		set     Set
		mine    []*corev1.Pod
		leaving []types.UID
		create  int
		delete  []string
		counts  Counts
	}{
		"none yet":           {set: set(3), create: 3},
		"as many as desired": {set: set(1), mine: []*corev1.Pod{pod("a")}, counts: Counts{Replicas: 1, FullyLabeled: 1, Ready: 1, Available: 1}},
		"what is terminating is made up for at once": {set: set(2), mine: []*corev1.Pod{pod("a"), pod("b", "terminating")}, create: 1, counts: Counts{Replicas: 1, FullyLabeled: 1, Ready: 1, Available: 1, Terminating: 1}},
		"what has failed is made up for":             {set: set(1), mine: []*corev1.Pod{pod("a", "failed")}, create: 1},
		"what has succeeded, too":                    {set: set(1), mine: []*corev1.Pod{pod("a", "succeeded")}, create: 1},
		"never more than a burst":                    {set: set(2000), create: burst},
		"deletions that are not seen yet": {
			set: set(1), mine: []*corev1.Pod{pod("a"), pod("b")}, leaving: []types.UID{"a"}, counts: Counts{Replicas: 1, FullyLabeled: 1, Ready: 1, Available: 1},
		},
		"being deleted it makes none":   {set: ending},
		"being deleted it deletes none": {set: func() Set { s := ending; s.Replicas = 0; return s }(), mine: []*corev1.Pod{pod("a", "unready")}, counts: Counts{Replicas: 1, FullyLabeled: 1}},
		"labels that the template lacks": {set: func() Set {
			s := set(1)
			s.Template.Labels["version"] = "new"
			return s
		}(), mine: []*corev1.Pod{pod("a", "relabelled")}, counts: Counts{Replicas: 1, Ready: 1, Available: 1}},

		"unbound goes first":               {set: set(1), mine: []*corev1.Pod{pod("a", "unready"), pod("b", "unbound")}, delete: []string{"b"}, counts: Counts{Replicas: 2, FullyLabeled: 2}},
		"pending before running":           {set: set(1), mine: []*corev1.Pod{pod("a", "unready"), pod("b", "pending")}, delete: []string{"b"}, counts: Counts{Replicas: 2, FullyLabeled: 2}},
		"unready before ready":             {set: set(1), mine: []*corev1.Pod{pod("a"), pod("b", "unready")}, delete: []string{"b"}, counts: Counts{Replicas: 2, FullyLabeled: 2, Ready: 1, Available: 1}},
		"low before high cost":             {set: set(1), mine: []*corev1.Pod{pod("a"), pod("b", "cheap")}, delete: []string{"b"}, counts: all(2)},
		"crowded before less crowded node": {set: set(2), mine: []*corev1.Pod{pod("a", "elsewhere"), pod("b"), pod("c")}, delete: []string{"b"}, counts: all(3)},
		"just ready before long":           {set: set(1), mine: []*corev1.Pod{pod("a"), pod("b", "just-ready")}, delete: []string{"b"}, counts: all(2)},
		"restarted before not restarted":   {set: set(1), mine: []*corev1.Pod{pod("a"), pod("b", "restarted")}, delete: []string{"b"}, counts: all(2)},
		"young before old":                 {set: set(1), mine: []*corev1.Pod{pod("a"), pod("b", "young")}, delete: []string{"b"}, counts: all(2)},
		"all":                              {set: set(0), mine: []*corev1.Pod{pod("a"), pod("b", "unready")}, delete: []string{"b", "a"}, counts: Counts{Replicas: 2, FullyLabeled: 2, Ready: 1, Available: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			seen := Observed{Mine: test.mine, Leaving: map[types.UID]bool{}}
			for _, uid := range test.leaving {
				seen.Leaving[uid] = true
			}
			p := Decide(test.set, seen, epoch.Add(time.Hour))
			var names []string
			for _, pod := range p.Delete {
				names = append(names, pod.Name)
			}
			if p.Create != test.create || !slices.Equal(names, test.delete) || p.Counts != test.counts {
				t.Errorf("create %d, delete %v, counts %+v;\nwant   %d, delete %v, counts %+v", p.Create, names, p.Counts, test.create, test.delete, test.counts)
			}
		})
	}
}

func all(n int32) Counts { return Counts{Replicas: n, FullyLabeled: n, Ready: n, Available: n} }

// A pod is available when it has been ready for long enough; the plan has the time until the
// next one is.
func TestMinReadySeconds(t *testing.T) {
	s := set(2)
	s.MinReady = 10 * time.Second
	p := Decide(s, Observed{Mine: []*corev1.Pod{pod("a"), pod("b", "just-ready")}}, epoch.Add(time.Hour))
	if p.Counts.Ready != 2 || p.Counts.Available != 1 || p.RequeueAfter != 9*time.Second {
		t.Errorf("%+v", p)
	}
}

// Pods of other revisions count towards the number of pods on a node, and are not deleted.
func TestPodsOfOtherRevisionsCountTowardsTheirNode(t *testing.T) {
	p := Decide(set(1), Observed{
		Mine: []*corev1.Pod{pod("a"), pod("b", "elsewhere")}, Related: []*corev1.Pod{pod("c", "elsewhere"), pod("d", "elsewhere")},
	}, epoch.Add(time.Hour))
	if len(p.Delete) != 1 || p.Delete[0].Name != "b" {
		t.Errorf("%v", p.Delete)
	}
}

// Whatever pods exist, carrying out the plan results in the desired number, and only pods that
// count are deleted.
func TestDecideReachesTheDesiredNumber(t *testing.T) {
	words := []string{"unbound", "pending", "unready", "failed", "succeeded", "terminating", "cheap", "restarted", "young", "just-ready", "elsewhere"}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 7))
		var mine []*corev1.Pod
		active := 0
		for i := range r.IntN(12) {
			p := pod(fmt.Sprint("p", i), words[r.IntN(len(words))], words[r.IntN(len(words))])
			if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
				active++
			}
			mine = append(mine, p)
		}
		desired := r.Int32N(12)
		plan := Decide(set(desired), Observed{Mine: mine}, epoch.Add(time.Hour))
		if got := active + plan.Create - len(plan.Delete); got != int(desired) {
			t.Fatalf("seed %d: %d pods, want %d", seed, got, desired)
		}
		for _, p := range plan.Delete {
			if p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed {
				t.Fatalf("seed %d: %s is deleted, which does not count", seed, p.Name)
			}
		}
	}
}

// Counts that are about to change again wait. Bad news does not, nor do counts of pods that may stay as they are.
func TestInterimCountsWait(t *testing.T) {
	ending := set(1)
	ending.Ending = true
	reported := set(2)
	reported.Reported = Counts{Replicas: 2, Ready: 2, Available: 2}
	large := make([]*corev1.Pod, 60)
	for i := range large {
		large[i] = pod(fmt.Sprint(i), "pending")
	}
	for name, test := range map[string]struct {
		set      Set
		mine     []*corev1.Pod
		hasNodes bool
		after    time.Duration // since the pods were created
		want     time.Duration
	}{
		"pods are created":                  {set: set(3), want: time.Second},
		"a pod starts":                      {set: set(2), mine: []*corev1.Pod{pod("a"), pod("b", "pending")}, want: time.Second},
		"all are ready":                     {set: set(2), mine: []*corev1.Pod{pod("a"), pod("b")}},
		"many start":                        {set: set(60), mine: large, want: 3 * time.Second},
		"a pod has not started for long":    {set: set(2), mine: []*corev1.Pod{pod("a"), pod("b", "pending")}, after: time.Hour},
		"unbound, with nodes":               {set: set(1), mine: []*corev1.Pod{pod("a", "unbound")}, hasNodes: true, want: time.Second},
		"unbound, without nodes":            {set: set(1), mine: []*corev1.Pod{pod("a", "unbound")}},
		"fewer pods are ready than before":  {set: reported, mine: []*corev1.Pod{pod("a"), pod("b", "unready")}},
		"there are fewer pods than before":  {set: reported, mine: []*corev1.Pod{pod("a")}},
		"the object is being deleted":       {set: ending, mine: []*corev1.Pod{pod("a")}, want: 10 * time.Second},
		"a pod ends, which is not replaced": {set: set(1), mine: []*corev1.Pod{pod("a"), pod("b", "terminating")}},
	} {
		if got := Decide(test.set, Observed{Mine: test.mine, HasNodes: test.hasNodes}, epoch.Add(test.after)).Interim; got != test.want {
			t.Errorf("%s: the counts may wait for %s, not %s", name, got, test.want)
		}
	}
}
