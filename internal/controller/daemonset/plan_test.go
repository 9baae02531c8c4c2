package daemonset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) // the start of each table test

const minReady = 10 * time.Second

// read reads nodes and their pods like "a: A+ B-; b!: ; c?: A+ (unbound d: B-)". A node
// with ! is unfit, with ? tolerable, and one in parentheses there is not. A pod is a
// revision and a state: + available, ~ ready since 4 s, - not ready, x failed, s
// succeeded, t terminating, T terminating and failed, l asked to be deleted. On a node
// the pods are in the order of their age. A pod in lower case is not bound yet.
func read(t *testing.T, text string) Observed {
	t.Helper()
	seen := Observed{Nodes: map[string]Fit{}, Leaving: map[types.UID]bool{}, Backoff: map[string]time.Duration{}}
	for part := range strings.SplitSeq(text, ";") {
		name, list, ok := strings.Cut(strings.TrimSpace(part), ":")
		if !ok {
			continue
		}
		node := strings.Trim(name, "!?()")
		switch {
		case strings.HasSuffix(name, "!"):
			seen.Nodes[node] = Unfit
		case strings.HasSuffix(name, "?"):
			seen.Nodes[node] = Tolerable
		case !strings.HasSuffix(name, ")"):
			seen.Nodes[node] = Fitting
		}
		for i, word := range strings.Fields(list) {
			pod := podLike(word, node, i)
			seen.Leaving[pod.UID] = word[1] == 'l'
			seen.Mine = append(seen.Mine, pod)
		}
	}
	return seen
}

func podLike(word, node string, age int) *corev1.Pod {
	pod := newPod(&corev1.PodTemplateSpec{}, "ns", node)
	pod.Name = fmt.Sprintf("%s%d", node, age)
	pod.UID = types.UID(pod.Name)
	pod.CreationTimestamp = metav1.NewTime(now.Add(time.Duration(age-100) * time.Minute))
	pod.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: strings.ToUpper(word[:1])}
	if word[:1] == strings.ToUpper(word[:1]) {
		pod.Spec.NodeName = node
	}
	pod.Status.Phase = corev1.PodRunning
	since := now.Add(-time.Hour)
	switch word[1] {
	case '~':
		since = now.Add(-4 * time.Second)
	case '-':
		since = time.Time{}
	case 'x':
		pod.Status.Phase, since = corev1.PodFailed, time.Time{}
	case 's':
		pod.Status.Phase, since = corev1.PodSucceeded, time.Time{}
	case 't':
		pod.DeletionTimestamp = &metav1.Time{Time: now}
	case 'T':
		pod.DeletionTimestamp, pod.Status.Phase, since = &metav1.Time{Time: now}, corev1.PodFailed, time.Time{}
	}
	if !since.IsZero() {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)}}
	}
	return pod
}

func steps(p Plan) string {
	var words []string
	slices.Sort(p.Create)
	for _, node := range p.Create {
		words = append(words, "create "+node)
	}
	var gone []string
	for _, pod := range p.Delete {
		gone = append(gone, "delete "+pod.Name)
	}
	slices.Sort(gone)
	return strings.Join(append(words, gone...), ", ")
}

func count(n int) *intstr.IntOrString {
	v := intstr.FromInt(n)
	return &v
}

func rolling(n int) Set {
	return Set{Hash: "A", MinReady: minReady, MaxUnavailable: count(n), MaxSurge: count(0)}
}

func surging(n int) Set {
	return Set{Hash: "A", MinReady: minReady, MaxUnavailable: count(0), MaxSurge: count(n)}
}

type decision struct {
	name string
	set  Set
	seen string
	want string
}

func check(t *testing.T, decisions []decision) {
	t.Helper()
	for _, d := range decisions {
		t.Run(d.name, func(t *testing.T) {
			if got := steps(Decide(d.set, read(t, d.seen), now)); got != d.want {
				t.Errorf("Decide with %q: %q, want %q", d.seen, got, d.want)
			}
		})
	}
}

func TestOnePodOnEachNodeThatFits(t *testing.T) {
	check(t, []decision{
		{"none yet", rolling(1), "a:; b:; c!:; d?:", "create a, create b"},
		{"one on each", rolling(1), "a: A+; b: A-", ""},
		{"one that is not bound yet", rolling(1), "a: a-", ""},
		{"on nodes that do not fit", rolling(1), "a!: A+ Ax At; b?: A+", "delete a0, delete a1"},
		{"two", rolling(1), "a: A+ A+", "delete a1"},
		{"two, of which one is not bound", rolling(1), "a: a- A-", "delete a0"},
		{"while one terminates", rolling(1), "a: At; b: Al", ""},
		{"when nothing is left of it", rolling(1), "a: AT", "create a"},
		{"failed", rolling(1), "a: Ax; b: As", "delete a0, delete b0"},
		{"failed, and there is another", rolling(1), "a: Ax A+", "delete a0"},
		{"for a node that is gone", rolling(1), "(a): a-", "delete a0"},
		{"on a node that is gone", rolling(1), "(a): A+", ""},
		{"being deleted", Set{Hash: "A", Ending: true}, "a:; b: A+ A+; c!: A+", ""},
	})
}

func TestRollingUpdateKeepsTheMinimum(t *testing.T) {
	check(t, []decision{
		{"one at a time", rolling(1), "a: B+; b: B+", "delete a0"},
		{"while it terminates", rolling(1), "a: Bt; b: B+", ""},
		{"while there is none", rolling(1), "a:; b: B+", "create a"},
		{"while the new one is not available", rolling(1), "a: A~; b: B+", ""},
		{"the next", rolling(1), "a: A+; b: B+", "delete b0"},
		{"those that are not available at once", rolling(1), "a: B-; b: B~; c: B+", "delete a0, delete b0"},
		{"as many as may be", rolling(2), "a: B+; b: B+; c: B+", "delete a0, delete b0"},
		{"a part, rounded up", Set{Hash: "A", MaxUnavailable: percent("34%")}, "a: B+; b: B+; c: B+; d!:", "delete a0, delete b0"},
		{"neither", Set{Hash: "A"}, "a: B+; b: B+", "delete a0"},
		{"a node with too many", rolling(1), "a: B+ B+; b: B+", "delete a1, delete b0"},
		{"people delete", Set{Hash: "A", OnDelete: true, MaxSurge: count(1)}, "a: B+; b: B-; c:", "create c"},
		{"where none is to be", rolling(1), "a?: B+; b: A+", "delete a0"},
	})
}

// A pod whose deletion was refused comes after the others, and in its turn again.
func TestRefusedPodsAreReplacedLast(t *testing.T) {
	for _, c := range []struct {
		name    string
		set     Set
		seen    string
		refused map[types.UID]int
		want    string
	}{
		{"none", rolling(1), "a: B+; b: B+; c: B+", nil, "delete a0"},
		{"one", rolling(1), "a: B+; b: B+; c: B+", map[types.UID]int{"a0": 1}, "delete b0"},
		{"two", rolling(1), "a: B+; b: B+; c: B+", map[types.UID]int{"a0": 1, "b0": 1}, "delete c0"},
		{"all, the first more often", rolling(1), "a: B+; b: B+; c: B+", map[types.UID]int{"a0": 2, "b0": 1, "c0": 1}, "delete b0"},
		{"another is down", rolling(1), "a: B+; b: B+; c: A-", map[types.UID]int{"a0": 1}, ""},
		{"surplus", surging(1), "a?: B+; b?: B+; c: A+", map[types.UID]int{"a0": 1}, "delete a0, delete b0"},
		{"a part of the surplus", surging(1), "a?: B+; b?: B+; c: A-", map[types.UID]int{"a0": 1}, "delete b0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := read(t, c.seen)
			seen.Refused = c.refused
			if got := steps(Decide(c.set, seen, now)); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	seen := Observed{Nodes: map[string]Fit{"a": Unfit}, Refused: map[types.UID]int{}}
	for i := range burst + 10 {
		pod := podLike("A+", "a", i)
		seen.Mine = append(seen.Mine, pod)
		if i < 10 {
			seen.Refused[pod.UID] = 1
		}
	}
	if p := Decide(rolling(1), seen, now); len(p.Delete) != burst || slices.ContainsFunc(p.Delete, func(pod *corev1.Pod) bool { return seen.Refused[pod.UID] > 0 }) {
		t.Errorf("%d pods are deleted, or refused ones among them", len(p.Delete))
	}
}

func percent(text string) *intstr.IntOrString {
	v := intstr.FromString(text)
	return &v
}

func TestSurgeKeepsAllAvailable(t *testing.T) {
	check(t, []decision{
		{"one at a time", surging(1), "a: B+; b: B+", "create a"},
		{"while it is not available", surging(1), "a: B+ A-; b: B+", ""},
		{"when it is", surging(1), "a: B+ A+; b: B+", "create b, delete a0"},
		{"the old one is not ready", surging(1), "a: B- A-", "delete a0"},
		{"the old one is not available", surging(1), "a: B-; b: B+", "create a, create b"},
		{"three", surging(1), "a: B+ B+ A-", "delete a1"},
		{"three, the older of the old ones is not available", surging(1), "a: B- B+ A-", "delete a0"},
		{"all terminate", surging(1), "a: At", "create a"},
		{"none", surging(1), "a:", "create a"},
		{"the new one has failed", surging(1), "a: B+ Ax; b: B+", "create a, delete a1"},
		{"from a node where none is to be", surging(1), "a?: B+; b: A-", ""},
		{"from it when the others are available", surging(1), "a?: B+; b: A+", "delete a0"},
		{"from it when it is of no use", surging(1), "a?: B-; b: A-", "delete a0"},
		{"all up to date", surging(1), "a: A+; b: A-", ""},
	})
}

func TestBackoffAfterFailures(t *testing.T) {
	for _, c := range []struct {
		name, seen, want string
		set              Set
	}{
		{"without a surge", "a: Ax; b: Ax", "delete b0", rolling(1)},
		{"with one", "a: Ax; b: Ax", "create b, delete b0", surging(1)},
		{"while surging", "a: B+ Ax; b: B+", "", surging(1)},
		{"it has succeeded", "a: As", "delete a0", rolling(1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := read(t, c.seen)
			seen.Backoff["a"], seen.Backoff["b"] = 3*time.Second, -time.Second
			p := Decide(c.set, seen, now)
			if got := steps(p); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			if paused := strings.Contains(c.seen, "Ax"); paused != (p.RequeueAfter == 3*time.Second) {
				t.Errorf("again in %v", p.RequeueAfter)
			}
		})
	}
}

func TestStatusCountsPodsByNode(t *testing.T) {
	for _, c := range []struct {
		seen string
		want Counts
	}{
		{"a:; b!:", Counts{Desired: 1}},
		{"a: A+; b: A~; c: B+; d: A-; e:", Counts{Desired: 5, Current: 4, Ready: 3, Available: 2, Updated: 3}},
		{"a!: A+; b?: A+; c!: At; d!:", Counts{Misscheduled: 3}},
		{"a: B+ A+", Counts{Desired: 1, Current: 1, Ready: 1, Available: 1}}, // the older one counts
		{"a: AT", Counts{Desired: 1}},
	} {
		if diff := cmp.Diff(c.want, Decide(rolling(1), read(t, c.seen), now).Counts); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.seen, diff)
		}
	}
}

func TestBackoffIsPerNodeAndTemplate(t *testing.T) {
	p := backoffs{byKey: map[backoffKey]backoff{}}
	at := backoffKey{"set", "hash", "node"}
	if left := p.left(at, now); left != 0 {
		t.Errorf("before anything has failed: %v", left)
	}
	clock, want := now, firstBackoff
	for range 12 {
		p.failed(at, clock)
		if left := p.left(at, clock); left != want {
			t.Fatalf("pause of %v, want %v", left, want)
		}
		clock, want = clock.Add(want), min(2*want, lastBackoff)
		if left := p.left(at, clock); left > 0 {
			t.Fatalf("%v are left at its end", left)
		}
	}
	if left := p.left(backoffKey{"set", "another template", "node"}, clock); left != 0 {
		t.Errorf("another template waits, too: %v", left)
	}
	p.failed(backoffKey{"other", "hash", "node"}, clock.Add(lastBackoff+time.Second))
	if len(p.byKey) != 1 {
		t.Errorf("old back-offs are not forgotten: %v", p.byKey)
	}
}
