package daemonset

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coppice-dev/coppice/internal/controller/controllerrevision"
	"github.com/coppice-dev/coppice/internal/testing/lagging"
)

// simulation is a set, its controller on caches that lag, nodes that come and go, and a
// user who changes the template.
type simulation struct {
	*lagging.World
	rand           *rand.Rand
	image, nodes   int
	maxUnavailable int
	surge          bool
	down           map[string]bool // nodes where the controller has taken the available pod away
	broken         string          // what contradicts a rule; the first of them
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	w, err := lagging.New(now, random, New)
	if err != nil {
		t.Fatal(err)
	}
	s := &simulation{World: w, rand: random, down: map[string]bool{}, surge: random.IntN(2) == 0}
	w.Watch = s.watch
	limit := int32(2)
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "agent"},
		Spec: appsv1.DaemonSetSpec{
			MinReadySeconds: int32(random.IntN(2) * 5), RevisionHistoryLimit: &limit,
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}},
			Template:       corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "agent"}}},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{}},
		},
	}
	if rolling := set.Spec.UpdateStrategy.RollingUpdate; s.surge {
		rolling.MaxSurge = count(1 + random.IntN(2))
	} else {
		s.maxUnavailable = 1 + random.IntN(2)
		rolling.MaxUnavailable = count(s.maxUnavailable)
	}
	s.setImage(set, 0)
	lagging.Put(w, "daemonsets", set)
	for range 2 + random.IntN(3) {
		s.addNode()
	}
	return s
}

func (s *simulation) setImage(set *appsv1.DaemonSet, n int) {
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: fmt.Sprintf("agent:%d", n)}}
}

func (s *simulation) addNode() {
	s.nodes++
	lagging.Put(s.World, "nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", s.nodes)}})
}

func (s *simulation) set() *appsv1.DaemonSet {
	return lagging.All[*appsv1.DaemonSet](s.World, "daemonsets")[0]
}

func (s *simulation) pods() []*corev1.Pod { return lagging.All[*corev1.Pod](s.World, "pods") }

func (s *simulation) minReady(set *appsv1.DaemonSet) time.Duration {
	return time.Duration(set.Spec.MinReadySeconds) * time.Second
}

// watch sees what the controller does, beside what it knows of the nodes.
func (s *simulation) watch(verb string, obj runtime.Object) {
	pod, ok := obj.(*corev1.Pod)
	set, err := s.Shared.Apps().V1().DaemonSets().Lister().DaemonSets("ns").Get("agent")
	if !ok || err != nil || s.broken != "" {
		return
	}
	switch verb {
	case "create":
		s.broken = s.created(pod)
	case "delete":
		s.broken = s.deleted(set, pod)
	}
}

// created: a node gets a pod when none is there, or, with a surge, none of the same
// revision and no more than one of another.
func (s *simulation) created(pod *corev1.Pod) string {
	same, other, leaving := 0, 0, 0
	lagging.Each(s.World, "pods", func(there *corev1.Pod) {
		switch finished := there.Status.Phase == corev1.PodFailed; {
		case nodeOf(there) != nodeOf(pod) || finished && there.DeletionTimestamp != nil:
		case there.DeletionTimestamp != nil || finished:
			leaving++
		case there.Labels[appsv1.ControllerRevisionHashLabelKey] == pod.Labels[appsv1.ControllerRevisionHashLabelKey]:
			same++
		default:
			other++
		}
	})
	if same > 0 || !s.surge && other+leaving > 0 || other > 1 {
		return fmt.Sprintf("%s gets a pod and has %d of the same revision, %d of others, %d that go", nodeOf(pod), same, other, leaving)
	}
	return ""
}

// deleted: on no more nodes than the set says may the available pod be taken away; with a
// surge on none.
func (s *simulation) deleted(set *appsv1.DaemonSet, pod *corev1.Pod) string {
	node, err := s.Shared.Core().V1().Nodes().Lister().Get(nodeOf(pod))
	if err != nil || FitOf(&set.Spec.Template, node) != Fitting || !s.Available(pod, s.minReady(set)) {
		return ""
	}
	covered := false
	lagging.Each(s.World, "pods", func(there *corev1.Pod) {
		covered = covered || there.Name != pod.Name && nodeOf(there) == node.Name && s.Available(there, s.minReady(set))
	})
	if covered {
		return ""
	}
	s.down[node.Name] = true
	if len(s.down) > s.maxUnavailable {
		return fmt.Sprintf("%s is the last of %d nodes that were left without an available pod, at most %d may be", node.Name, len(s.down), s.maxUnavailable)
	}
	return ""
}

// recover takes in where a pod is available again, or is no longer wished for.
func (s *simulation) recover() {
	set := s.set()
	fitting := map[string]bool{}
	for _, node := range lagging.All[*corev1.Node](s.World, "nodes") {
		fitting[node.Name] = FitOf(&set.Spec.Template, node) == Fitting
	}
	for node := range s.down {
		if !fitting[node] {
			delete(s.down, node)
		}
	}
	for _, pod := range s.pods() {
		if s.Available(pod, s.minReady(set)) {
			delete(s.down, nodeOf(pod))
		}
	}
}

// live lets the kubelet of one pod in that many, and the collector of pods, do something.
func (s *simulation) live(many int) bool {
	nodes := map[string]bool{}
	for _, node := range lagging.All[*corev1.Node](s.World, "nodes") {
		nodes[node.Name] = true
	}
	worked := false
	for _, pod := range s.pods() {
		switch {
		case s.rand.IntN(many) > 0:
		case pod.Spec.NodeName != "" && !nodes[pod.Spec.NodeName]:
			lagging.Remove(s.World, "pods", pod)
			worked = true
		case s.Work(pod, func(pod *corev1.Pod) string {
			if nodes[nodeOf(pod)] {
				return nodeOf(pod)
			}
			return ""
		}):
			worked = true
		}
	}
	s.recover()
	return worked
}

// disturb does something that a user does, or an accident.
func (s *simulation) disturb() {
	nodes, list := lagging.All[*corev1.Node](s.World, "nodes"), s.pods()
	set := s.set()
	set.Generation++
	switch n := s.rand.IntN(8); {
	case n == 0:
		s.image++
		s.setImage(set, s.image)
		lagging.Put(s.World, "daemonsets", set)
	case n == 1:
		s.setImage(set, s.rand.IntN(s.image+1))
		lagging.Put(s.World, "daemonsets", set)
	case n == 2 && len(nodes) < 6:
		s.addNode()
	case n == 3 && len(nodes) > 0:
		lagging.Remove(s.World, "nodes", nodes[s.rand.IntN(len(nodes))])
	case n == 4 && len(nodes) > 0:
		node := nodes[s.rand.IntN(len(nodes))]
		node.Spec.Taints = [][]corev1.Taint{
			nil, nil, {{Key: "mine", Effect: corev1.TaintEffectNoSchedule}}, {{Key: "mine", Effect: corev1.TaintEffectNoExecute}},
		}[s.rand.IntN(4)]
		lagging.Put(s.World, "nodes", node)
	case n == 5 && len(list) > 0:
		lagging.Remove(s.World, "pods", list[s.rand.IntN(len(list))])
	case n == 6 && len(list) > 0:
		s.Fail(list[s.rand.IntN(len(list))])
	case n == 7 && len(list) > 0:
		if pod := list[s.rand.IntN(len(list))]; pod.Spec.NodeName != "" {
			s.Run(pod, false)
		}
	}
}

// settle lets everything come to rest: nobody has anything to do, nor will have as time
// passes. It is false when that does not end.
func (s *simulation) settle(ctx context.Context) bool {
	for range 500 {
		if !s.Rest(ctx) {
			return false
		}
		if !s.live(1) && !s.Soon(time.Hour) {
			return true
		}
		s.recover()
	}
	return false
}

// atRest says what is not as it ought to be when nothing happens any more.
func (s *simulation) atRest() string {
	set := s.set()
	on := map[string][]*corev1.Pod{}
	for _, pod := range s.pods() {
		on[nodeOf(pod)] = append(on[nodeOf(pod)], pod)
	}
	hash, wrong := s.hash(set), []string(nil)
	var want Counts
	for _, node := range lagging.All[*corev1.Node](s.World, "nodes") {
		fit, n := FitOf(&set.Spec.Template, node), len(on[node.Name])
		switch {
		case fit == Fitting:
			want.Desired++
		case n > 0:
			want.Misscheduled++
		}
		if fit == Fitting && n != 1 || fit == Unfit && n > 0 || n > 1 {
			wrong = append(wrong, fmt.Sprintf("%s has %d pods, and its fit is %d", node.Name, n, fit))
		}
		for _, pod := range on[node.Name] {
			if !s.Available(pod, s.minReady(set)) || pod.Labels[appsv1.ControllerRevisionHashLabelKey] != hash {
				wrong = append(wrong, fmt.Sprintf("%s is not available, or not updated: %v", pod.Name, pod.Labels))
			}
		}
		delete(on, node.Name)
	}
	if len(on) > 0 {
		wrong = append(wrong, "there are pods for nodes that are gone")
	}
	n, st := want.Desired, set.Status
	if st.ObservedGeneration != set.Generation || st.DesiredNumberScheduled != n || st.CurrentNumberScheduled != n || st.NumberReady != n ||
		st.NumberAvailable != n || st.UpdatedNumberScheduled != n || st.NumberUnavailable != 0 || st.NumberMisscheduled != want.Misscheduled {
		wrong = append(wrong, fmt.Sprintf("the status is %+v, want %d of each", st, n))
	}
	return strings.Join(wrong, "; ")
}

// hash is of the revision that holds the template, which must have the highest number.
func (s *simulation) hash(set *appsv1.DaemonSet) string {
	data, err := controllerrevision.Data(&set.Spec.Template)
	if err != nil {
		return err.Error()
	}
	all := lagging.All[*appsv1.ControllerRevision](s.World, "controllerrevisions")
	controllerrevision.Sort(all)
	for i := 1; i < len(all); i++ {
		if all[i].Revision == all[i-1].Revision {
			return fmt.Sprintf("two revisions with number %d", all[i].Revision)
		}
	}
	if len(all) == 0 || len(all) > int(*set.Spec.RevisionHistoryLimit)+1 || string(all[len(all)-1].Data.Raw) != string(data) {
		return fmt.Sprintf("%d revisions, and the newest holds another template", len(all))
	}
	return all[len(all)-1].Labels[appsv1.ControllerRevisionHashLabelKey]
}

// TestRandomHistories lets users, nodes and a controller on caches that lag do what they
// do, in any order and with requests that fail, and then lets it come to rest.
func TestRandomHistories(t *testing.T) {
	const histories = 120
	for seed := range uint64(histories) {
		s := newSimulation(t, seed)
		if seed%3 == 0 {
			s.Fate = lagging.Unlucky(rand.New(rand.NewPCG(seed, 2)), 20)
		}
		s.Adverse = seed%2 == 0
		for range 600 {
			switch n := s.rand.IntN(100); {
			case n < 2:
				s.disturb()
			case n < 15:
				s.live(2)
			case n < 20:
				s.Soon(3 * time.Second)
			default:
				s.Step(t.Context())
			}
			s.recover()
		}
		s.Fate = nil
		if !s.settle(t.Context()) {
			t.Fatalf("seed %d: it does not come to rest: %s", seed, s.atRest())
		}
		if wrong := s.atRest(); wrong != "" || s.broken != "" || len(s.Wrong) > 0 {
			t.Fatalf("seed %d: at rest: %q; on the way: %q; errors: %v", seed, wrong, s.broken, s.Wrong)
		}
		for _, pod := range s.pods() {
			if !labels.SelectorFromSet(s.set().Spec.Selector.MatchLabels).Matches(labels.Set(pod.Labels)) {
				t.Fatalf("seed %d: %s has labels %v", seed, pod.Name, pod.Labels)
			}
		}
	}
}
