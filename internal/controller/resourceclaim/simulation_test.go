package resourceclaim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/testing/histories"
	"github.com/coppice-dev/coppice/internal/testing/laggingcache"
)

// simulation has pods with claims of their own and one that they share, a scheduler that allocates
// and reserves, users who delete, nodes on which pods end, and the garbage collector.
type simulation struct {
	*laggingcache.Cluster
	choose histories.Choose
	// reserved are the reservations that the scheduler has made.
	reserved map[reservation]bool
}

type reservation struct{ claim, pod types.UID }

func newSimulation(t *rapid.T) *simulation {
	choose := histories.Choices(t)
	var made []*controller.Controller
	c, err := laggingcache.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), choose,
		func(shared *controller.Context) (_ *controller.Controller, err error) {
			if made, err = Controllers(shared); err != nil {
				return nil, err
			}
			return made[0], nil
		},
		func(*controller.Context) (*controller.Controller, error) { return made[1], nil })
	if err != nil {
		t.Fatal(err)
	}
	s := &simulation{Cluster: c, choose: choose, reserved: map[reservation]bool{}}
	for range choose(10) {
		s.Disturb()
	}
	return s
}

func (s *simulation) pods() []*corev1.Pod { return laggingcache.All[*corev1.Pod](s.Cluster, "pods") }

func (s *simulation) claims() []*resourcev1.ResourceClaim {
	return laggingcache.All[*resourcev1.ResourceClaim](s.Cluster, "resourceclaims")
}

func one[T any](s *simulation, all []T) (chosen T, ok bool) {
	if len(all) == 0 {
		return chosen, false
	}
	return all[s.choose(len(all))], true
}

// Disturb implements laggingcache.Scenario.
func (s *simulation) Disturb() {
	switch s.choose(9) {
	case 0:
		s.addPod()
	case 1:
		if pod, ok := one(s, s.pods()); ok {
			s.remove(pod)
		}
	case 2:
		s.changeTemplate()
	case 3, 4:
		s.schedule()
	case 5:
		if pod, ok := one(s, s.pods()); ok && pod.Spec.NodeName != "" {
			pod.Status.Phase = []corev1.PodPhase{corev1.PodSucceeded, corev1.PodRunning}[s.choose(2)]
			if !isDone(s.stored(pod)) {
				laggingcache.Put(s.Cluster, "pods", pod)
			}
		}
	case 6:
		if claim, ok := one(s, s.claims()); ok {
			s.markClaim(claim)
		}
	case 7: // a user binds it
		if pod, ok := one(s, s.pods()); ok && pod.DeletionTimestamp == nil && pod.Spec.NodeName == "" {
			pod.Spec.NodeName = "n"
			laggingcache.Put(s.Cluster, "pods", pod)
		}
	case 8:
		if len(s.claims()) == 0 || s.choose(3) == 0 {
			s.addShared()
		}
	}
}

func (s *simulation) stored(pod *corev1.Pod) *corev1.Pod {
	for _, p := range s.pods() {
		if p.Name == pod.Name {
			return p
		}
	}
	return pod
}

func (s *simulation) addPod() {
	name := fmt.Sprint("p", s.choose(3))
	if slices.ContainsFunc(s.pods(), func(p *corev1.Pod) bool { return p.Name == name }) {
		return
	}
	template, shared := "t", "shared"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "a", ResourceClaimTemplateName: &template}, {Name: "b", ResourceClaimTemplateName: &template}}
	if s.choose(2) == 0 {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims[:1], corev1.PodResourceClaim{Name: "s", ResourceClaimName: &shared})
	}
	laggingcache.Put(s.Cluster, "pods", pod)
}

// remove deletes a pod: one that is on a node waits for it.
func (s *simulation) remove(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" || isDone(pod) {
		laggingcache.Remove(s.Cluster, "pods", pod)
	} else if pod.DeletionTimestamp == nil {
		now := metav1.NewTime(s.Clock.Now())
		pod.DeletionTimestamp = &now
		laggingcache.Put(s.Cluster, "pods", pod)
	}
}

func (s *simulation) changeTemplate() {
	templates := laggingcache.All[*resourcev1.ResourceClaimTemplate](s.Cluster, "resourceclaimtemplates")
	if len(templates) > 0 && s.choose(3) == 0 {
		laggingcache.Remove(s.Cluster, "resourceclaimtemplates", templates[0])
	} else if len(templates) == 0 {
		laggingcache.Put(s.Cluster, "resourceclaimtemplates", &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "t"}})
	}
}

func (s *simulation) addShared() {
	if !slices.ContainsFunc(s.claims(), func(c *resourcev1.ResourceClaim) bool { return c.Name == "shared" }) {
		laggingcache.Put(s.Cluster, "resourceclaims", &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "shared"}})
	}
}

// schedule allocates the claims of a pod, reserves them and binds the pod; or it stops after the
// first claim.
func (s *simulation) schedule() {
	pod, ok := one(s, s.pods())
	if !ok || pod.DeletionTimestamp != nil || pod.Spec.NodeName != "" {
		return
	}
	for _, claim := range s.claims() {
		if !slices.Contains(claimNames(pod), claim.Name) || claim.DeletionTimestamp != nil {
			continue
		}
		if !slices.Contains(claim.Finalizers, resourcev1.Finalizer) {
			claim.Finalizers = append(claim.Finalizers, resourcev1.Finalizer)
		}
		claim.Status.Allocation = &resourcev1.AllocationResult{}
		if s.choose(4) == 0 {
			laggingcache.Put(s.Cluster, "resourceclaims", claim)
			return
		}
		if r := (reservation{claim.UID, pod.UID}); !s.reserved[r] {
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
			s.reserved[r] = true
		}
		laggingcache.Put(s.Cluster, "resourceclaims", claim)
	}
	if s.choose(2) == 0 {
		pod.Spec.NodeName = "n"
		laggingcache.Put(s.Cluster, "pods", pod)
	}
}

// markClaim deletes a claim: finalizers hold it.
func (s *simulation) markClaim(claim *resourcev1.ResourceClaim) {
	if len(claim.Finalizers) == 0 {
		laggingcache.Remove(s.Cluster, "resourceclaims", claim)
	} else if claim.DeletionTimestamp == nil {
		now := metav1.NewTime(s.Clock.Now())
		claim.DeletionTimestamp = &now
		laggingcache.Put(s.Cluster, "resourceclaims", claim)
	}
}

// Live is the node, which ends pods that are being deleted, and the garbage collector.
func (s *simulation) Live(int) bool {
	pods := s.pods()
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			laggingcache.Remove(s.Cluster, "pods", pod)
			return true
		}
	}
	for _, claim := range s.claims() {
		owned := claim.Name == "shared" || slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return metav1.IsControlledBy(claim, p) })
		if !owned && claim.DeletionTimestamp == nil {
			s.markClaim(claim)
			return true
		}
	}
	return false
}

// Observe implements laggingcache.Scenario: a pod keeps its claims until it ends, and no claim is
// created twice.
func (s *simulation) Observe() string {
	claims, made := s.claims(), map[string]string{}
	for _, claim := range claims {
		if owner := ownerOf(claim); owner != nil {
			of := string(owner.UID) + "/" + claim.Annotations[resourcev1.PodResourceClaimAnnotation]
			if made[of] != "" {
				return fmt.Sprintf("%s and %s were both made for %s", made[of], claim.Name, of)
			}
			made[of] = claim.Name
		}
	}
	for _, pod := range s.pods() {
		for r := range s.reserved {
			if r.pod != pod.UID || isDone(pod) {
				continue
			}
			i := slices.IndexFunc(claims, func(c *resourcev1.ResourceClaim) bool { return c.UID == r.claim })
			if i < 0 {
				return fmt.Sprintf("%s runs, and a claim reserved for it is gone", pod.Name)
			}
			holds := slices.ContainsFunc(claims[i].Status.ReservedFor, func(c resourcev1.ResourceClaimConsumerReference) bool { return c.UID == pod.UID })
			if !holds || claims[i].Status.Allocation == nil || !slices.Contains(claims[i].Finalizers, resourcev1.Finalizer) {
				return fmt.Sprintf("%s runs, and %s, reserved for it, is released", pod.Name, claims[i].Name)
			}
		}
	}
	return ""
}

// AtRest implements laggingcache.Scenario.
func (s *simulation) AtRest() string {
	var wrong []string
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	pods, claims := s.pods(), s.claims()
	templates := laggingcache.All[*resourcev1.ResourceClaimTemplate](s.Cluster, "resourceclaimtemplates")
	for _, pod := range pods {
		for _, c := range pod.Spec.ResourceClaims {
			if c.ResourceClaimTemplateName == nil || len(templates) == 0 || isDone(pod) {
				continue
			}
			if !slices.ContainsFunc(pod.Status.ResourceClaimStatuses, func(status corev1.PodResourceClaimStatus) bool {
				return status.Name == c.Name && slices.ContainsFunc(claims, func(claim *resourcev1.ResourceClaim) bool {
					return claim.Name == *status.ResourceClaimName && metav1.IsControlledBy(claim, pod)
				})
			}) {
				add("%s has no claim %s", pod.Name, c.Name)
			}
		}
	}
	for _, claim := range claims {
		for _, r := range claim.Status.ReservedFor {
			if !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.UID == r.UID && !isDone(p) }) {
				add("%s is reserved for %s, which has ended", claim.Name, r.Name)
			}
		}
		if claim.DeletionTimestamp != nil && len(claim.Status.ReservedFor) == 0 {
			add("%s is held by nothing", claim.Name)
		}
		if slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return metav1.IsControlledBy(claim, p) && isDone(p) }) && len(claim.Status.ReservedFor) == 0 {
			add("%s is kept for a pod that has ended", claim.Name)
		}
	}
	return strings.Join(wrong, "; ")
}

func TestRandomHistories(t *testing.T) {
	histories.Check(t, 120, 400, func(t *rapid.T) {
		s := newSimulation(t)
		s.Play(t, s)
	})
}
