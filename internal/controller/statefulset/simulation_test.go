package statefulset

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
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/testing/histories"
	"github.com/coppice-dev/coppice/internal/testing/laggingcache"
)

// simulation is a set, its controller on lagging caches, kubelets, a garbage collector, and a
// user who changes everything that can be changed.
type simulation struct {
	*laggingcache.Cluster
	choose histories.Choose
	image  int
	down   map[string]bool // ordinals that the controller has made unavailable
	broken string          // the first rule that was broken
}

func newSimulation(t rapid.TB, choose histories.Choose) *simulation {
	t.Helper()
	c, err := laggingcache.New(now, choose, New)
	if err != nil {
		t.Fatal(err)
	}
	s := &simulation{Cluster: c, choose: choose, down: map[string]bool{}}
	c.Watch = s.watch
	replicas, partition, limit := int32(choose(5)), int32(choose(3)), int32(2)
	unavailable := intstr.FromInt32(int32(1 + choose(2)))
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, MinReadySeconds: int32(choose(2) * 5), RevisionHistoryLimit: &limit,
			Selector:             &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{
				Partition: &partition, MaxUnavailable: &unavailable,
			}},
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: s.policy(), WhenScaled: s.policy()},
		},
	}
	if choose(2) == 0 {
		set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	}
	s.setImage(set, 0)
	laggingcache.Put(c, "statefulsets", set)
	return s
}

func (s *simulation) policy() appsv1.PersistentVolumeClaimRetentionPolicyType {
	if s.choose(2) == 0 {
		return appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	}
	return appsv1.RetainPersistentVolumeClaimRetentionPolicyType
}

func (s *simulation) setImage(set *appsv1.StatefulSet, n int) {
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: fmt.Sprintf("web:%d", n)}}
}

func (s *simulation) set() *appsv1.StatefulSet {
	return laggingcache.All[*appsv1.StatefulSet](s.Cluster, "statefulsets")[0]
}

func (s *simulation) pods() []*corev1.Pod { return laggingcache.All[*corev1.Pod](s.Cluster, "pods") }

func (s *simulation) minReady(set *appsv1.StatefulSet) time.Duration {
	return time.Duration(set.Spec.MinReadySeconds) * time.Second
}

// watch checks what the controller does against the set that its cache shows.
func (s *simulation) watch(verb string, obj runtime.Object) {
	pod, ok := obj.(*corev1.Pod)
	set, err := s.Informers.StatefulSets.Lister().StatefulSets("ns").Get("web")
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

// created: a pod below the partition is of the current revision, and has a volume claim that
// will not be collected with an earlier pod.
func (s *simulation) created(set *appsv1.StatefulSet, pod *corev1.Pod) string {
	n, _ := ordinalOf("web", pod.Name)
	current := laggingcache.Peek[*appsv1.StatefulSet](s.Cluster, "statefulsets", "ns/web").Status.CurrentRevision
	revision := pod.Labels[appsv1.ControllerRevisionHashLabelKey]
	if below := n-start(set) < int(*set.Spec.UpdateStrategy.RollingUpdate.Partition); below && current != "" && revision != current {
		return fmt.Sprintf("%s is below the partition and made of %s, the current revision is %s", pod.Name, revision, current)
	}
	claim := laggingcache.Peek[*corev1.PersistentVolumeClaim](s.Cluster, "persistentvolumeclaims", "ns/"+claimName("data", pod.Name))
	if claim == nil || isStale(claim, pod.Name) {
		return fmt.Sprintf("%s is created for a volume claim that is about to go: %v", pod.Name, claim)
	}
	return ""
}

// deleted: the controller may delete no more of the pods that the cache shows as available than the
// set allows; pods that users or nodes end do not count. A condemned pod takes its volume claim along
// if that is the policy.
func (s *simulation) deleted(set *appsv1.StatefulSet, pod *corev1.Pod) string {
	if isCondemned(set, pod) {
		claim := laggingcache.Peek[*corev1.PersistentVolumeClaim](s.Cluster, "persistentvolumeclaims", "ns/"+claimName("data", pod.Name))
		if claim != nil && retentionOf(set, true).WithPod != metav1.IsControlledBy(claim, pod) {
			return fmt.Sprintf("%s goes, and its claim has owners %v", pod.Name, claim.OwnerReferences)
		}
		return ""
	}
	shown, err := s.Informers.Pods.Lister().Pods("ns").Get(pod.Name)
	if err != nil || !s.Available(shown, s.minReady(set)) {
		return ""
	}
	s.down[pod.Name] = true
	if most := set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue(); len(s.down) > most {
		return fmt.Sprintf("%s is the last of %d available pods that were taken down, at most %d may be", pod.Name, len(s.down), most)
	}
	return ""
}

// Observe records which pods are available again or no longer desired.
func (s *simulation) Observe() string {
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
	return s.broken
}

// Live lets the garbage collector and the kubelet of one in many pods act.
func (s *simulation) Live(many int) bool {
	worked := false
	for _, pod := range s.pods() {
		if s.choose(many) == 0 && s.Kubelet(pod, func(*corev1.Pod) string { return "node" }) {
			worked = true
		}
	}
	pods := map[types.UID]bool{}
	for _, pod := range s.pods() {
		pods[pod.UID] = true
	}
	for _, claim := range laggingcache.All[*corev1.PersistentVolumeClaim](s.Cluster, "persistentvolumeclaims") {
		if owner := metav1.GetControllerOf(claim); owner != nil && owner.Kind == "Pod" && !pods[owner.UID] && s.choose(many) == 0 {
			laggingcache.Remove(s.Cluster, "persistentvolumeclaims", claim)
			worked = true
		}
	}
	return worked
}

// Disturb performs a random user action or accident.
func (s *simulation) Disturb() {
	set := s.set()
	set.Generation++
	switch s.choose(8) {
	case 0:
		n := int32(s.choose(5))
		set.Spec.Replicas = &n
	case 1:
		s.image++
		s.setImage(set, s.image)
	case 2:
		s.setImage(set, s.choose(s.image+1))
	case 3:
		n := int32(s.choose(4))
		set.Spec.UpdateStrategy.RollingUpdate.Partition = &n
	case 4:
		set.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled, set.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted = s.policy(), s.policy()
	case 5:
		set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: int32(s.choose(3))}
	default:
		s.accident()
		return
	}
	laggingcache.Put(s.Cluster, "statefulsets", set)
}

func (s *simulation) accident() {
	list := s.pods()
	if len(list) == 0 {
		return
	}
	switch pod := list[s.choose(len(list))]; s.choose(3) {
	case 0:
		laggingcache.Remove(s.Cluster, "pods", pod)
	case 1:
		s.SetFailed(pod)
	default:
		if pod.Spec.NodeName != "" && pod.Status.Phase != corev1.PodFailed { // which is for ever
			s.SetRunning(pod, false)
		}
	}
}

// AtRest implements laggingcache.Scenario.
func (s *simulation) AtRest() string {
	set := s.set()
	want := map[string]bool{}
	for i := range replicas(set) {
		want[podName("web", start(set)+i)] = true
	}
	var wrong []string
	update := s.revision(set)
	for _, pod := range s.pods() {
		ordinal, ok := ordinalOf("web", pod.Name)
		switch {
		case !ok:
			wrong = append(wrong, pod.Name+" is no name of a pod of the set")
		case !labels.SelectorFromSet(identityLabels(pod.Name, ordinal)).Matches(labels.Set(pod.Labels)):
			wrong = append(wrong, fmt.Sprintf("%s has labels %v", pod.Name, pod.Labels))
		case !want[pod.Name]:
			wrong = append(wrong, pod.Name+" is condemned")
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

// revision returns the revision that holds the template, which must have the highest number.
func (s *simulation) revision(set *appsv1.StatefulSet) string {
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
	if len(all) == 0 || string(all[len(all)-1].Data.Raw) != string(data) {
		return "the newest revision holds another template"
	}
	if len(all) > int(*set.Spec.RevisionHistoryLimit)+2+len(s.pods()) {
		return "old revisions are left"
	}
	return all[len(all)-1].Name
}

// claims returns the errors in the volume claims of pods.
func (s *simulation) claims(set *appsv1.StatefulSet) string {
	known := map[string]*corev1.PersistentVolumeClaim{}
	for _, claim := range laggingcache.All[*corev1.PersistentVolumeClaim](s.Cluster, "persistentvolumeclaims") {
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

func TestRandomHistories(t *testing.T) {
	histories.Check(t, 120, 600, func(t *rapid.T) {
		s := newSimulation(t, histories.Choices(t))
		s.Play(t, s)
	})
}

// With Parallel, neither a pod that cannot be deleted nor one that cannot be created holds back the others: a quota may
// refuse it because of those that are to be deleted. The deletion is tried again, however the creation fails.
func TestRefusalHoldsBackNoOtherPodOfAParallelSet(t *testing.T) {
	pods := corev1.Resource("pods")
	protected, terminating := apierrors.NewForbidden(pods, "web-4", errors.New("protected")), apierrors.NewForbidden(pods, "web-0", nil)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, refusal := range map[string]error{
		"the creation fails":             apierrors.NewInternalError(errors.New("refused")),
		"the namespace is to be deleted": terminating,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSimulation(t, func(int) int { return 0 })
			resize := func(n int32) {
				set := s.set()
				set.Spec.Replicas = &n
				laggingcache.Put(s.Cluster, "statefulsets", set)
				for range 50 {
					s.Quiesce(t.Context())
					s.Live(1)
					s.Wait(10 * time.Second)
				}
			}
			resize(5)
			client := s.Client.(*fake.Clientset)
			client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				return action.(clienttesting.DeleteAction).GetName() == "web-4", nil, protected
			})
			client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				return action.(clienttesting.CreateAction).GetObject().(*corev1.Pod).Name == "web-0", nil, refusal
			})
			laggingcache.Remove(s.Cluster, "pods", s.pods()[0])
			resize(2)
			var left []string
			for _, pod := range s.pods() {
				left = append(left, pod.Name)
			}
			others := slices.DeleteFunc(s.Errors, func(err error) bool { return errors.Is(err, protected) })
			if got := strings.Join(left, " "); got != "web-1 web-4" || len(others) > 0 {
				t.Errorf("%s are left; errors: %v", got, others)
			}
			attempts := 0
			client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				attempts++
				return false, nil, nil
			})
			if s.Rest(t.Context(), time.Second); attempts < 10 {
				t.Errorf("%d further attempts", attempts)
			}
		})
	}
}

// R25: a pod that was created and deleted while the watch was down has no event.
func TestR25_LostEventDelaysAStatefulSet(t *testing.T) {
	for reconciliations := range 2 {
		s := newSimulation(t, func(int) int { return 0 })
		set := s.set()
		set.Spec.Replicas = new(int32(1))
		laggingcache.Put(s.Cluster, "statefulsets", set)
		s.LoseCreation(t.Context(), "pods", reconciliations)
		s.Rest(t.Context(), 2*controller.LostEventPeriod)
		if n := len(s.pods()); n != 1 || len(s.Errors) > 0 {
			t.Errorf("reconciled %d times before: %d pods; errors: %v", reconciliations, n, s.Errors)
		}
	}
}
