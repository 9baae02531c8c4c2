package daemonset

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/testing/histories"
	"github.com/coppice-dev/coppice/internal/testing/laggingcache"
)

// simulation is a set, its controller on lagging caches, nodes that come and go, and a user who
// changes the template.
type simulation struct {
	*laggingcache.Cluster
	choose         histories.Choose
	image, nodes   int
	maxUnavailable int
	surge          bool
	requested      map[types.UID]bool // pods that the controller has deleted
	down           map[string]bool    // nodes where the controller has taken the available pod away
	broken         string             // the first rule that was broken
}

func newSimulation(t rapid.TB, choose histories.Choose) *simulation {
	t.Helper()
	c, err := laggingcache.New(now, choose, New)
	if err != nil {
		t.Fatal(err)
	}
	s := &simulation{Cluster: c, choose: choose, requested: map[types.UID]bool{}, down: map[string]bool{}, surge: choose(2) == 0}
	c.Watch = s.watch
	limit := int32(2)
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "agent"},
		Spec: appsv1.DaemonSetSpec{
			MinReadySeconds: int32(choose(2) * 5), RevisionHistoryLimit: &limit,
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}},
			Template:       corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "agent"}}},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{}},
		},
	}
	if rolling := set.Spec.UpdateStrategy.RollingUpdate; s.surge {
		rolling.MaxSurge = count(1 + choose(2))
	} else {
		s.maxUnavailable = 1 + choose(2)
		rolling.MaxUnavailable = count(s.maxUnavailable)
	}
	s.setImage(set, 0)
	laggingcache.Put(c, "daemonsets", set)
	for range 2 + choose(3) {
		s.addNode()
	}
	return s
}

func (s *simulation) setImage(set *appsv1.DaemonSet, n int) {
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: fmt.Sprintf("agent:%d", n)}}
}

func (s *simulation) addNode() {
	s.nodes++
	laggingcache.Put(s.Cluster, "nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", s.nodes)}})
}

func (s *simulation) set() *appsv1.DaemonSet {
	return laggingcache.All[*appsv1.DaemonSet](s.Cluster, "daemonsets")[0]
}

func (s *simulation) pods() []*corev1.Pod { return laggingcache.All[*corev1.Pod](s.Cluster, "pods") }

func (s *simulation) minReady(set *appsv1.DaemonSet) time.Duration {
	return time.Duration(set.Spec.MinReadySeconds) * time.Second
}

// watch checks what the controller does against the nodes that its cache shows.
func (s *simulation) watch(verb string, obj runtime.Object) {
	pod, ok := obj.(*corev1.Pod)
	set, err := s.Informers.DaemonSets.Lister().DaemonSets("ns").Get("agent")
	if !ok || err != nil || s.broken != "" {
		return
	}
	switch verb {
	case "create":
		s.broken = s.created(pod)
	case "delete":
		s.requested[pod.UID] = true
		s.broken = s.deleted(set, pod)
	}
}

// created: a node gets a pod when none is there, or, with a surge, none of the same
// revision and no more than one of another.
func (s *simulation) created(pod *corev1.Pod) string {
	same, other, leaving := 0, 0, 0
	laggingcache.Each(s.Cluster, "pods", func(there *corev1.Pod) {
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
		return fmt.Sprintf("%s gets a pod and has %d of the same revision, %d of others, %d that are leaving", nodeOf(pod), same, other, leaving)
	}
	return ""
}

// deleted: the available pod may be deleted on no more nodes than the set says; with a surge on
// none.
func (s *simulation) deleted(set *appsv1.DaemonSet, pod *corev1.Pod) string {
	node, err := s.Informers.Nodes.Lister().Get(nodeOf(pod))
	if err != nil || fitOf(&set.Spec.Template, node) != Fitting || !s.Available(pod, s.minReady(set)) {
		return ""
	}
	covered := false
	laggingcache.Each(s.Cluster, "pods", func(there *corev1.Pod) {
		covered = covered || there.Name != pod.Name && nodeOf(there) == node.Name && s.Available(there, s.minReady(set))
	})
	if covered || s.seemsCovered(set, node.Name) {
		return ""
	}
	s.down[node.Name] = true
	left := 0
	for name := range s.down {
		if s.seemsDown(set, name) {
			left++
		}
	}
	if left > s.maxUnavailable {
		return fmt.Sprintf("%s is the last of %d nodes that were left without an available pod, at most %d may be", node.Name, left, s.maxUnavailable)
	}
	return ""
}

// seemsDown reports whether the cache shows that a node is to have a pod and has no available one.
func (s *simulation) seemsDown(set *appsv1.DaemonSet, name string) bool {
	node, err := s.Informers.Nodes.Lister().Get(name)
	return err == nil && fitOf(&set.Spec.Template, node) == Fitting && !s.seemsCovered(set, name)
}

// seemsCovered reports whether the cache shows an available pod on a node. A user may have removed it just now, or
// before it has become available, which the controller cannot know; it only knows its own deletions.
func (s *simulation) seemsCovered(set *appsv1.DaemonSet, node string) bool {
	shown, err := s.Informers.Pods.Lister().List(labels.Everything())
	return err == nil && slices.ContainsFunc(shown, func(there *corev1.Pod) bool {
		return nodeOf(there) == node && s.Available(there, s.minReady(set)) && !s.requested[there.UID]
	})
}

// Observe records on which nodes a pod is available again or no longer desired.
func (s *simulation) Observe() string {
	set := s.set()
	fitting := map[string]bool{}
	for _, node := range laggingcache.All[*corev1.Node](s.Cluster, "nodes") {
		fitting[node.Name] = fitOf(&set.Spec.Template, node) == Fitting
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
	return s.broken
}

// Live lets podgc and the kubelet of one in many pods act.
func (s *simulation) Live(many int) bool {
	nodes := map[string]bool{}
	for _, node := range laggingcache.All[*corev1.Node](s.Cluster, "nodes") {
		nodes[node.Name] = true
	}
	worked := false
	for _, pod := range s.pods() {
		switch {
		case s.choose(many) > 0:
		case pod.Spec.NodeName != "" && !nodes[pod.Spec.NodeName]:
			laggingcache.Remove(s.Cluster, "pods", pod)
			worked = true
		case s.Kubelet(pod, func(pod *corev1.Pod) string {
			if nodes[nodeOf(pod)] {
				return nodeOf(pod)
			}
			return ""
		}):
			worked = true
		}
	}
	return worked
}

// Disturb performs a random user action or accident.
func (s *simulation) Disturb() {
	nodes, list := laggingcache.All[*corev1.Node](s.Cluster, "nodes"), s.pods()
	set := s.set()
	set.Generation++
	switch n := s.choose(8); {
	case n == 0:
		s.image++
		s.setImage(set, s.image)
		laggingcache.Put(s.Cluster, "daemonsets", set)
	case n == 1:
		s.setImage(set, s.choose(s.image+1))
		laggingcache.Put(s.Cluster, "daemonsets", set)
	case n == 2 && len(nodes) < 6:
		s.addNode()
	case n == 3 && len(nodes) > 0:
		laggingcache.Remove(s.Cluster, "nodes", nodes[s.choose(len(nodes))])
	case n == 4 && len(nodes) > 0:
		node := nodes[s.choose(len(nodes))]
		node.Spec.Taints = [][]corev1.Taint{
			nil, nil, {{Key: "mine", Effect: corev1.TaintEffectNoSchedule}}, {{Key: "mine", Effect: corev1.TaintEffectNoExecute}},
		}[s.choose(4)]
		laggingcache.Put(s.Cluster, "nodes", node)
	case n == 5 && len(list) > 0:
		laggingcache.Remove(s.Cluster, "pods", list[s.choose(len(list))])
	case n == 6 && len(list) > 0:
		s.SetFailed(list[s.choose(len(list))])
	case n == 7 && len(list) > 0:
		if pod := list[s.choose(len(list))]; pod.Spec.NodeName != "" && pod.Status.Phase != corev1.PodFailed { // which is for ever
			s.SetRunning(pod, false)
		}
	}
}

// AtRest implements laggingcache.Scenario.
func (s *simulation) AtRest() string {
	set := s.set()
	on := map[string][]*corev1.Pod{}
	var wrong []string
	for _, pod := range s.pods() {
		on[nodeOf(pod)] = append(on[nodeOf(pod)], pod)
		if !labels.SelectorFromSet(set.Spec.Selector.MatchLabels).Matches(labels.Set(pod.Labels)) {
			wrong = append(wrong, fmt.Sprintf("%s has labels %v", pod.Name, pod.Labels))
		}
	}
	hash := s.hash(set)
	var want Counts
	for _, node := range laggingcache.All[*corev1.Node](s.Cluster, "nodes") {
		fit, n := fitOf(&set.Spec.Template, node), len(on[node.Name])
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

// hash returns the hash of the revision that holds the template, which must have the highest
// number.
func (s *simulation) hash(set *appsv1.DaemonSet) string {
	data, err := controller.RevisionData(&set.Spec.Template)
	if err != nil {
		return err.Error()
	}
	all := laggingcache.All[*appsv1.ControllerRevision](s.Cluster, "controllerrevisions")
	controller.SortRevisions(all)
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

func TestRandomHistories(t *testing.T) {
	histories.Check(t, 120, 600, func(t *rapid.T) {
		s := newSimulation(t, histories.Choices(t))
		s.Play(t, s)
	})
}

// A pod that cannot be deleted, for example because a policy protects it, does not hold back the rollout on the other nodes.
func TestRefusedDeletionHoldsBackNoOtherNode(t *testing.T) {
	for name, first := range map[string]int{"surging": 0, "one unavailable": 1} {
		t.Run(name, func(t *testing.T) {
			s := newSimulation(t, func(int) int {
				defer func() { first = 0 }()
				return first
			})
			for again := true; again; again = s.Live(1) || s.Wait(10*time.Second) {
				s.Quiesce(t.Context())
			}
			protected := s.pods()[0]
			s.Client.(*fake.Clientset).PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				pod := action.(clienttesting.DeleteAction).GetName()
				return pod == protected.Name, nil, apierrors.NewForbidden(corev1.Resource("pods"), pod, errors.New("protected"))
			})
			set := s.set()
			s.setImage(set, 1)
			laggingcache.Put(s.Cluster, "daemonsets", set)
			var old []*corev1.Pod
			for range 50 {
				s.Quiesce(t.Context())
				s.Live(1)
				s.Wait(10 * time.Second)
				old = slices.DeleteFunc(s.pods(), func(pod *corev1.Pod) bool { return pod.Spec.Containers[0].Image == "agent:1" })
			}
			others := slices.DeleteFunc(s.Errors, apierrors.IsForbidden)
			if len(old) != 1 || old[0].Name != protected.Name || s.broken != "" || len(others) > 0 {
				t.Errorf("%d old pods are left, want the protected one alone; broken: %q; errors: %v", len(old), s.broken, others)
			}
		})
	}
}

// R25: pods that were created and deleted while the watch was down have no events.
func TestR25_LostEventDelaysADaemonSet(t *testing.T) {
	for reconciliations := range 2 {
		s := newSimulation(t, func(int) int { return 0 })
		s.LoseCreation(t.Context(), "pods", reconciliations)
		s.Rest(t.Context(), 2*controller.LostEventPeriod)
		if n := len(s.pods()); n != s.nodes || len(s.Errors) > 0 {
			t.Errorf("reconciled %d times before: %d pods on %d nodes; errors: %v", reconciliations, n, s.nodes, s.Errors)
		}
	}
}
