package statefulset

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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coppice-dev/coppice/internal/controller/controllerrevision"
	"github.com/coppice-dev/coppice/internal/testing/lagging"
)

// simulation is a set, its controller on caches that lag, kubelets, a collector, and a
// user who changes everything that can be changed.
type simulation struct {
	*lagging.World
	t      *testing.T
	rand   *rand.Rand
	image  int
	down   map[string]bool // ordinals that the controller has made unavailable
	broken string          // what contradicts a rule; the first of them
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	w, err := lagging.New(now, random, New)
	if err != nil {
		t.Fatal(err)
	}
	s := &simulation{World: w, t: t, rand: random, down: map[string]bool{}}
	w.Watch = s.watch
	replicas, partition, limit := int32(random.IntN(5)), int32(random.IntN(3)), int32(2)
	unavailable := intstr.FromInt32(int32(1 + random.IntN(2)))
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, MinReadySeconds: int32(random.IntN(2) * 5), RevisionHistoryLimit: &limit,
			Selector:             &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{
				Partition: &partition, MaxUnavailable: &unavailable,
			}},
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: s.policy(), WhenScaled: s.policy()},
		},
	}
	if random.IntN(2) == 0 {
		set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	}
	s.setImage(set, 0)
	lagging.Put(w, "statefulsets", set)
	return s
}

func (s *simulation) policy() appsv1.PersistentVolumeClaimRetentionPolicyType {
	if s.rand.IntN(2) == 0 {
		return appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	}
	return appsv1.RetainPersistentVolumeClaimRetentionPolicyType
}

func (s *simulation) setImage(set *appsv1.StatefulSet, n int) {
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: fmt.Sprintf("web:%d", n)}}
}

func (s *simulation) set() *appsv1.StatefulSet {
	return lagging.All[*appsv1.StatefulSet](s.World, "statefulsets")[0]
}

func (s *simulation) pods() []*corev1.Pod { return lagging.All[*corev1.Pod](s.World, "pods") }

func (s *simulation) minReady(set *appsv1.StatefulSet) time.Duration {
	return time.Duration(set.Spec.MinReadySeconds) * time.Second
}

// watch sees what the controller does, beside what it knows to be wished for.
func (s *simulation) watch(verb string, obj runtime.Object) {
	pod, ok := obj.(*corev1.Pod)
	set, err := s.Shared.Apps().V1().StatefulSets().Lister().StatefulSets("ns").Get("web")
	if !ok || err != nil || s.broken != "" {
		return
	}
	switch verb {
	case "create":
		s.broken = s.created(set, pod)
	case "delete":
		s.broken = s.deleted(set, pod)
	}
}

// created: a pod below the partition is of the current revision, and has a claim that is
// not about to go with an earlier pod.
func (s *simulation) created(set *appsv1.StatefulSet, pod *corev1.Pod) string {
	n, _ := ordinalOf("web", pod.Name)
	current := lagging.Peek[*appsv1.StatefulSet](s.World, "statefulsets", "ns/web").Status.CurrentRevision
	revision := pod.Labels[appsv1.ControllerRevisionHashLabelKey]
	if below := n-start(set) < int(*set.Spec.UpdateStrategy.RollingUpdate.Partition); below && current != "" && revision != current {
		return fmt.Sprintf("%s is below the partition and made of %s, the current revision is %s", pod.Name, revision, current)
	}
	claim := lagging.Peek[*corev1.PersistentVolumeClaim](s.World, "persistentvolumeclaims", "ns/"+claimName("data", pod.Name))
	if claim == nil || isStale(claim, pod.Name) {
		return fmt.Sprintf("%s is made for a claim that is not to stay: %v", pod.Name, claim)
	}
	return ""
}

// deleted: of the pods that are available not more may be taken down than the set says;
// those that people or nodes take down are not the controller's doing. A pod that is one
// too many takes its claim along where that is the policy.
func (s *simulation) deleted(set *appsv1.StatefulSet, pod *corev1.Pod) string {
	if isCondemned(set, pod) {
		claim := lagging.Peek[*corev1.PersistentVolumeClaim](s.World, "persistentvolumeclaims", "ns/"+claimName("data", pod.Name))
		if claim != nil && retentionOf(set, true).WithPod != metav1.IsControlledBy(claim, pod) {
			return fmt.Sprintf("%s goes, and its claim has owners %v", pod.Name, claim.OwnerReferences)
		}
		return ""
	}
	if !s.Available(pod, s.minReady(set)) {
		return ""
	}
	s.down[pod.Name] = true
	if most := set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue(); len(s.down) > most {
		return fmt.Sprintf("%s is the last of %d available pods that were taken down, at most %d may be", pod.Name, len(s.down), most)
	}
	return ""
}

// recover takes in which pods are available again, or are no longer wished for.
func (s *simulation) recover() {
	set := s.set()
	for name := range s.down {
		if isCondemned(set, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}) {
			delete(s.down, name)
		}
	}
	for _, pod := range s.pods() {
		if s.Available(pod, s.minReady(set)) {
			delete(s.down, pod.Name)
		}
	}
}

// live lets the kubelet of one pod in that many, and the collector, do something.
func (s *simulation) live(many int) bool {
	worked := false
	for _, pod := range s.pods() {
		if s.rand.IntN(many) == 0 && s.Work(pod, func(*corev1.Pod) string { return "node" }) {
			worked = true
		}
	}
	pods := map[types.UID]bool{}
	for _, pod := range s.pods() {
		pods[pod.UID] = true
	}
	for _, claim := range lagging.All[*corev1.PersistentVolumeClaim](s.World, "persistentvolumeclaims") {
		if owner := metav1.GetControllerOf(claim); owner != nil && owner.Kind == "Pod" && !pods[owner.UID] && s.rand.IntN(many) == 0 {
			lagging.Remove(s.World, "persistentvolumeclaims", claim)
			worked = true
		}
	}
	s.recover()
	return worked
}

// disturb does something that a user does, or an accident.
func (s *simulation) disturb() {
	set := s.set()
	set.Generation++
	switch s.rand.IntN(8) {
	case 0:
		n := int32(s.rand.IntN(5))
		set.Spec.Replicas = &n
	case 1:
		s.image++
		s.setImage(set, s.image)
	case 2:
		s.setImage(set, s.rand.IntN(s.image+1))
	case 3:
		n := int32(s.rand.IntN(4))
		set.Spec.UpdateStrategy.RollingUpdate.Partition = &n
	case 4:
		set.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled, set.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted = s.policy(), s.policy()
	case 5:
		set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: int32(s.rand.IntN(3))}
	default:
		s.accident()
		return
	}
	lagging.Put(s.World, "statefulsets", set)
}

func (s *simulation) accident() {
	list := s.pods()
	if len(list) == 0 {
		return
	}
	switch pod := list[s.rand.IntN(len(list))]; s.rand.IntN(3) {
	case 0:
		lagging.Remove(s.World, "pods", pod)
	case 1:
		s.Fail(pod)
	default:
		if pod.Spec.NodeName != "" {
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
	want := map[string]bool{}
	for i := range replicas(set) {
		want[podName("web", start(set)+i)] = true
	}
	var wrong []string
	update := s.revision(set)
	for _, pod := range s.pods() {
		ordinal, _ := ordinalOf("web", pod.Name)
		switch {
		case !want[pod.Name]:
			wrong = append(wrong, pod.Name+" is one too many")
		case !s.Available(pod, s.minReady(set)):
			wrong = append(wrong, pod.Name+" is not available")
		case ordinal-start(set) >= int(*set.Spec.UpdateStrategy.RollingUpdate.Partition) && pod.Labels[appsv1.ControllerRevisionHashLabelKey] != update:
			wrong = append(wrong, pod.Name+" is not updated")
		}
		delete(want, pod.Name)
	}
	if len(want) > 0 {
		wrong = append(wrong, fmt.Sprintf("%v are missing", want))
	}
	n := *set.Spec.Replicas
	if st := set.Status; st.UpdateRevision != update || st.Replicas != n || st.ReadyReplicas != n || st.AvailableReplicas != n || st.ObservedGeneration != set.Generation {
		wrong = append(wrong, fmt.Sprintf("the status is %+v", st))
	}
	return strings.Join(append(wrong, s.claims(set)), "; ")
}

// revision is the one that holds the template, which must have the highest number.
func (s *simulation) revision(set *appsv1.StatefulSet) string {
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
	if len(all) == 0 || string(all[len(all)-1].Data.Raw) != string(data) {
		return "the newest revision holds another template"
	}
	if len(all) > int(*set.Spec.RevisionHistoryLimit)+2+len(s.pods()) {
		return "old revisions are left"
	}
	return all[len(all)-1].Name
}

// claims says what is wrong with the claims of pods.
func (s *simulation) claims(set *appsv1.StatefulSet) string {
	known := map[string]*corev1.PersistentVolumeClaim{}
	for _, claim := range lagging.All[*corev1.PersistentVolumeClaim](s.World, "persistentvolumeclaims") {
		known[claim.Name] = claim
	}
	for _, pod := range s.pods() {
		claim := known[claimName("data", pod.Name)]
		if claim == nil {
			return "no claim for " + pod.Name
		}
		owner := metav1.GetControllerOf(claim)
		if with := retentionOf(set, false).WithSet; with != (owner != nil && owner.UID == set.UID) || !with && owner != nil {
			return fmt.Sprintf("claim %s is owned by %v", claim.Name, owner)
		}
	}
	return ""
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
			if !labels.SelectorFromSet(identityLabels(pod.Name, ordinal(t, pod))).Matches(labels.Set(pod.Labels)) {
				t.Fatalf("seed %d: %s has labels %v", seed, pod.Name, pod.Labels)
			}
		}
	}
}

func ordinal(t *testing.T, pod *corev1.Pod) int {
	t.Helper()
	n, ok := ordinalOf("web", pod.Name)
	if !ok {
		t.Fatalf("%s is no name of a pod of the set", pod.Name)
	}
	return n
}
