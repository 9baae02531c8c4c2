package statefulset

import (
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) // the start of each table test

const minReady = 10 * time.Second

// seenPods reads pods like "0A+ 1B-": ordinal, revision and state, which is + for
// available, ~ for ready since 4 s, - for not ready, x for failed, s for succeeded, t for
// terminating and ? for asked to be deleted.
func seenPods(t *testing.T, text string) Observed {
	t.Helper()
	seen := Observed{Leaving: map[types.UID]bool{}}
	for word := range strings.FieldsSeq(text) {
		ordinal, err := strconv.Atoi(word[:len(word)-2])
		if err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: podName("web", ordinal), UID: types.UID(word)}}
		pod.Labels = identityLabels(pod.Name, ordinal)
		pod.Labels[appsv1.ControllerRevisionHashLabelKey] = word[len(word)-2 : len(word)-1]
		since := now.Add(-time.Hour)
		pod.Status.Phase = corev1.PodRunning
		switch word[len(word)-1] {
		case '~':
			since = now.Add(-4 * time.Second)
		case '-':
			since = time.Time{}
		case 'x':
			pod.Status.Phase = corev1.PodFailed
		case 's':
			pod.Status.Phase = corev1.PodSucceeded
		case 't':
			pod.DeletionTimestamp = &metav1.Time{Time: now}
		case '?':
			seen.Leaving[pod.UID] = true
		}
		if !since.IsZero() {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)}}
		}
		seen.Mine = append(seen.Mine, pod)
	}
	return seen
}

func steps(p Plan) string {
	var words []string
	for _, pod := range p.Label {
		words = append(words, "label "+pod.Name)
	}
	for _, pod := range p.Incomplete {
		words = append(words, "complete "+strings.TrimPrefix(pod.Name, "web-"))
	}
	for _, at := range p.Create {
		words = append(words, fmt.Sprintf("create %d%s", at.Ordinal, at.Revision))
	}
	for _, pod := range p.Delete {
		words = append(words, "delete "+strings.TrimPrefix(pod.Name, "web-"))
	}
	return strings.Join(words, ", ")
}

func ordered(change func(*Set)) Set {
	s := Set{Name: "web", Replicas: 3, MaxUnavailable: 1, MinReady: minReady, Current: "A", Update: "A"}
	if change != nil {
		change(&s)
	}
	return s
}

func parallel(change func(*Set)) Set {
	return ordered(func(s *Set) {
		s.Parallel = true
		if change != nil {
			change(s)
		}
	})
}

type decision struct {
	name string
	set  Set
	pods string
	want string
}

func check(t *testing.T, decisions []decision) {
	t.Helper()
	for _, d := range decisions {
		t.Run(d.name, func(t *testing.T) {
			if got := steps(Decide(d.set, seenPods(t, d.pods), now)); got != d.want {
				t.Errorf("Decide with %q: %q, want %q", d.pods, got, d.want)
			}
		})
	}
}

func TestOrderedPodsComeOneAfterTheOther(t *testing.T) {
	updating := func(s *Set) { s.Update = "B" }
	check(t, []decision{
		{"the first", ordered(nil), "", "create 0A"},
		{"not ready", ordered(nil), "0A-", ""},
		{"ready, but not for long enough", ordered(nil), "0A~", ""},
		{"available", ordered(nil), "0A+", "create 1A"},
		{"a gap", ordered(nil), "0A+ 2A+", "create 1A"},
		{"a gap behind one that is not ready", ordered(nil), "0A- 2A+", ""},
		{"all", ordered(nil), "0A+ 1A+ 2A+", ""},
		{"failed", ordered(nil), "0A+ 1Ax", "delete 1"},
		{"succeeded", ordered(nil), "0A+ 1As", "delete 1"},
		{"terminating", ordered(nil), "0A+ 1At", ""},
		{"asked to be deleted", ordered(nil), "0A+ 1A?", ""},
		{"another first ordinal", ordered(func(s *Set) { s.Start = 5 }), "5A+", "create 6A"},
		{"below the first ordinal", ordered(func(s *Set) { s.Start = 1 }), "0A+ 1A+ 2A+ 3A+", "delete 0"},
		{"not ready, in an update", ordered(updating), "0A-", ""},
		{"not ready, in an update, behind others", ordered(updating), "0A+ 1A+ 2A-", ""},
		{"not ready, in a roll-back", ordered(updating), "0A+ 1A+ 2C-", ""},
		{"ready, but not for long enough, in an update", ordered(updating), "0A~", ""},
		{"below the partition it stays", ordered(func(s *Set) { s.Update = "B"; s.Partition = 1 }), "0A-", ""},
		{"below the partition it is the current revision", ordered(func(s *Set) { s.Update = "B"; s.Partition = 2 }), "0A+", "create 1A"},
		{"from the partition on it is the new one", ordered(func(s *Set) { s.Update = "B"; s.Partition = 1 }), "0A+", "create 1B"},
		{"people delete", ordered(func(s *Set) { s.Update = "B"; s.OnDelete = true; s.Partition = 2 }), "0A+", "create 1B"},
		{"being deleted", ordered(func(s *Set) { s.Ending = true }), "0A+ 1Ax 7A+", ""},
	})
}

func TestOrderedPodsGoOneAfterTheOther(t *testing.T) {
	one := func(s *Set) { s.Replicas = 1 }
	check(t, []decision{
		{"the highest", ordered(one), "0A+ 1A+ 2A+", "delete 2"},
		{"one terminates", ordered(one), "0A+ 1A+ 2At", ""},
		{"one was asked to", ordered(one), "0A+ 1A+ 2A?", ""},
		{"one that stays is not ready", ordered(one), "0A- 1A+ 2A+", ""},
		{"two that go are not ready", ordered(one), "0A+ 1A- 2A-", ""},
		{"it is not ready itself", ordered(one), "0A+ 1A+ 2A-", "delete 2"},
		{"it is ready, the next is not", ordered(one), "0A+ 1A- 2A+", "delete 2"},
		{"ready, but not for long enough, and the next is not ready", ordered(one), "0A+ 1A- 2A~", ""},
		{"not ready, and the next not for long enough", ordered(one), "0A+ 1A~ 2A-", ""},
		{"not ready, and the next terminates", ordered(one), "0A+ 1At 2A-", ""},
		{"ready, and the next terminates", ordered(one), "0A+ 1At 2A+", "delete 2"},
		{"it has failed", ordered(one), "0A+ 1A+ 2Ax", "delete 2"},
		{"two have failed, and cannot become ready", ordered(one), "0A+ 1Ax 2Ax", "delete 2"},
		{"to nothing", ordered(func(s *Set) { s.Replicas = 0 }), "0A+", "delete 0"},
		{"before an update", ordered(func(s *Set) { s.Replicas = 1; s.Update = "B" }), "0A+ 1A+", "delete 1"},
	})
}

func TestParallelPodsDoNotWait(t *testing.T) {
	check(t, []decision{
		{"all at once", parallel(nil), "", "create 0A, create 1A, create 2A"},
		{"around one that is not ready", parallel(nil), "1A-", "create 0A, create 2A"},
		{"failed", parallel(nil), "0A+ 1Ax 2At", "delete 1"},
		{"too many", parallel(func(s *Set) { s.Replicas = 1 }), "0A- 1A+ 2At 3A-", "delete 3, delete 1"},
		{"both", parallel(func(s *Set) { s.Start = 2; s.Replicas = 2 }), "0A+ 1A+ 2A+", "create 3A, delete 1, delete 0"},
	})
}

func TestUpdateKeepsTheMinimum(t *testing.T) {
	updating := func(s *Set) { s.Update = "B" }
	two := func(s *Set) { s.Update = "B"; s.MaxUnavailable = 2 }
	check(t, []decision{
		{"the highest first", ordered(updating), "0A+ 1A+ 2A+", "delete 2"},
		{"while it terminates", ordered(updating), "0A+ 1A+ 2At", ""},
		{"when it is gone", ordered(updating), "0A+ 1A+", "create 2B"},
		{"until it is available", ordered(updating), "0A+ 1A+ 2B~", ""},
		{"the next", ordered(updating), "0A+ 1A+ 2B+", "delete 1"},
		{"down to the partition", ordered(func(s *Set) { s.Update = "B"; s.Partition = 1 }), "0A+ 1B+ 2B+", ""},
		{"a partition of all", ordered(func(s *Set) { s.Update = "B"; s.Partition = 9 }), "0A+ 1A+ 2A+", ""},
		{"a newer one below the partition", ordered(func(s *Set) { s.Update = "B"; s.Partition = 1 }), "0B+ 1B+ 2B+", ""},
		{"people delete", ordered(func(s *Set) { s.Update = "B"; s.OnDelete = true }), "0A+ 1A+ 2A+", ""},
		{"two at a time", ordered(two), "0A+ 1A+ 2A+", "delete 2, delete 1"},
		{"parallel", parallel(updating), "0A+ 1A+ 2A+", "delete 2"},
		{"parallel, one is unavailable", parallel(updating), "0A+ 1B~ 2A+", ""},
		{"parallel, one of two is unavailable", parallel(two), "0A+ 1B~ 2A+", "delete 2"},
		{"parallel, one is asked to be deleted", parallel(two), "0A+ 1A? 2A+", "delete 2"},
		{"parallel, a roll-back of what never became ready", parallel(updating), "0A+ 1C- 2A+", "delete 1"},
		{"parallel, of several", parallel(updating), "0A+ 1C- 2C-", "delete 2, delete 1"},
		{"parallel, of all", parallel(updating), "0C- 1C- 2C-", "delete 2, delete 1, delete 0"},
		{"parallel, while one is on the way", parallel(updating), "0A+ 1C- 2B-", "delete 1"},
		{"parallel, not below the partition", parallel(func(s *Set) { s.Update = "B"; s.Partition = 2 }), "0C- 1C- 2C-", "delete 2"},
		{"parallel, people delete", parallel(func(s *Set) { s.Update = "B"; s.OnDelete = true }), "0C- 1C- 2A+", ""},
		{"parallel, ready, but not for long enough", parallel(two), "0A+ 1A+ 2A~", "delete 2, delete 1"},
		{"parallel, those that go leave room for no other", parallel(updating), "0A+ 1A+ 2C-", "delete 2"},
	})
}

func TestAdoptedPodsGetTheirLabels(t *testing.T) {
	seen := seenPods(t, "0A+ 1A+ 2At")
	for _, pod := range seen.Mine {
		delete(pod.Labels, appsv1.StatefulSetPodNameLabel)
	}
	if got := steps(Decide(ordered(nil), seen, now)); got != "label web-0, label web-1" {
		t.Errorf("Decide: %q", got)
	}
}

func TestPodsWithoutAVolumeForEachClaimHaltTheSet(t *testing.T) {
	claims := func(s *Set) { s.Claims = []string{"data", "logs"} }
	rolling := func(s *Set) { claims(s); s.Update = "B" }
	fewer := func(s *Set) { claims(s); s.Replicas = 1 }
	for _, d := range []struct {
		name string
		set  Set
		pods string
		with int // the first pods that have all volumes
		want string
	}{
		{"all have them", ordered(claims), "0A+ 1A+", 2, "create 2A"},
		{"the first has not", ordered(claims), "0A+ 1A+", 0, "complete 0"},
		{"the second has not", ordered(claims), "0A+ 1A+ 2A+", 1, "complete 1"},
		{"one that is not ready comes first", ordered(claims), "0A- 1A+ 2A+", 0, ""},
		{"it is not updated", ordered(rolling), "0A+ 1A+ 2A+", 2, "complete 2"},
		{"nothing is deleted", ordered(fewer), "0A+ 1A+ 2A+", 0, "complete 0"},
		{"those that go need none", ordered(fewer), "0A+ 1A+ 2A+", 1, "delete 2"},
		{"parallel, others are created", parallel(claims), "0A+ 1A-", 0, "complete 0, complete 1, create 2A"},
		{"parallel, nothing is deleted", parallel(fewer), "0A+ 1A+ 2A+", 0, "complete 0"},
		{"parallel, it is not updated", parallel(rolling), "0A+ 1A+ 2A-", 2, "complete 2"},
	} {
		t.Run(d.name, func(t *testing.T) {
			seen := seenPods(t, d.pods)
			for i, pod := range seen.Mine {
				templates := []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}, {ObjectMeta: metav1.ObjectMeta{Name: "logs"}}}
				if i >= d.with {
					templates = templates[:1]
				}
				pod.Spec.Volumes = volumes(pod, templates)
			}
			if got := steps(Decide(d.set, seen, now)); got != d.want {
				t.Errorf("Decide with %q: %q, want %q", d.pods, got, d.want)
			}
		})
	}
}

func TestStatusCountsPodsByRevision(t *testing.T) {
	for _, c := range []struct {
		name string
		set  Set
		pods string
		want Counts
		done bool
	}{
		{"none", ordered(nil), "", Counts{}, false},
		{"all", ordered(nil), "0A+ 1A+ 2A+", Counts{3, 3, 3, 3, 3}, true},
		{"in an update", ordered(func(s *Set) { s.Update = "B" }), "0A+ 1A- 2B~ 3At", Counts{4, 3, 1, 2, 1}, false},
		{"updated", ordered(func(s *Set) { s.Update = "B" }), "0B+ 1B+ 2B~", Counts{3, 3, 2, 0, 3}, true},
		{"one too many", ordered(func(s *Set) { s.Update = "B" }), "0B+ 1B+ 2B+ 3B+", Counts{4, 4, 4, 0, 4}, false},
		{"of no revision that is known", ordered(nil), "0C+", Counts{1, 1, 1, 0, 0}, false},
		{"of none", ordered(func(s *Set) { s.Replicas = 0 }), "", Counts{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Decide(c.set, seenPods(t, c.pods), now)
			if diff := cmp.Diff(c.want, p.Counts); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
			if p.Updated != c.done {
				t.Errorf("updated is %t, want %t", p.Updated, c.done)
			}
		})
	}
}

func TestAgainWhenAPodBecomesAvailable(t *testing.T) {
	if p := Decide(ordered(nil), seenPods(t, "0A+ 1A~ 2A-"), now); p.RequeueAfter != 6*time.Second {
		t.Errorf("again in %v, want 6s", p.RequeueAfter)
	}
	if p := Decide(ordered(nil), seenPods(t, "0A+ 1A-"), now); p.RequeueAfter != 0 {
		t.Errorf("again in %v, want never", p.RequeueAfter)
	}
}

func TestParallelSetCreatesABurstOfPods(t *testing.T) {
	p := Decide(parallel(func(s *Set) { s.Replicas = 3 * burst }), Observed{}, now)
	if len(p.Create) != burst || p.Create[burst-1].Ordinal != burst-1 {
		t.Errorf("%d pods at once, want the first %d", len(p.Create), burst)
	}
}

// allocated returns how many bytes a function allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A set may desire more pods than fit in memory, whether they exist or not: a step depends on the pods that exist.
func TestLargestSetCostsNoMoreThanItsPods(t *testing.T) {
	largest := func(s *Set) { s.Start, s.Replicas = math.MaxInt32, math.MaxInt32 }
	last := math.MaxInt32 + math.MaxInt32 - 1
	updating := func(s *Set) { largest(s); s.Update = "B" }
	pod := func(ordinal int, what string) string { return strconv.Itoa(ordinal) + what }
	first, second := pod(math.MaxInt32, "A+"), pod(math.MaxInt32+1, "A+")
	burstOf := func(from int, revision string) string {
		var words []string
		for i := range burst {
			words = append(words, fmt.Sprintf("create %d%s", from+i, revision))
		}
		return strings.Join(words, ", ")
	}
	for _, d := range []decision{
		{"the first", ordered(largest), "", "create 2147483647A"},
		{"the next", ordered(largest), first + " " + second, "create 2147483649A"},
		{"a gap before the last", ordered(largest), first + " " + pod(last, "A+"), "create 2147483648A"},
		{"below the first", ordered(largest), "0A+ " + first, "create 2147483648A"},
		{"below the partition", ordered(func(s *Set) { updating(s); s.Partition = math.MaxInt32 }), first, "create 2147483648A"},
		{"from the partition on", ordered(func(s *Set) { updating(s); s.Partition = 1 }), first, "create 2147483648B"},
		{"parallel", parallel(largest), first + " " + pod(last, "A+"), burstOf(math.MaxInt32+1, "A")},
		{"parallel, in an update", parallel(updating), first + " " + pod(last, "C-"), burstOf(math.MaxInt32+1, "B") + ", delete 4294967293"},
		{
			"parallel, all may be unavailable",
			parallel(func(s *Set) { updating(s); s.MaxUnavailable = math.MaxInt32 }),
			first + " " + second,
			burstOf(math.MaxInt32+2, "B") + ", delete 2147483648, delete 2147483647",
		},
	} {
		t.Run(d.name, func(t *testing.T) {
			seen := seenPods(t, d.pods)
			var p Plan
			if bytes := allocated(func() { p = Decide(d.set, seen, now) }); bytes > 1<<20 {
				t.Errorf("%d bytes are allocated", bytes)
			}
			if got := steps(p); got != d.want {
				t.Errorf("Decide with %q: %q, want %q", d.pods, got, d.want)
			}
			if p.Updated {
				t.Error("the update counts as complete")
			}
		})
	}
}
