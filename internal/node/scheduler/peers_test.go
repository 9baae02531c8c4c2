package scheduler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

func inZone(zone, name string) *corev1.Node {
	n := node(name, "1")
	n.Labels = map[string]string{"zone": zone}
	return n
}

// placed is a pod of an app on a node.
func placed(name, app, on string) *corev1.Pod {
	p := pod(name, "1m")
	p.Labels, p.Spec.NodeName = map[string]string{"app": app}, on
	return p
}

func term(app string) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}
}

// waiting is a pod of the app "a" with constraints on others.
func waiting(constrain func(*corev1.PodSpec)) *corev1.Pod {
	p := pod("waiting", "1m")
	p.Labels = map[string]string{"app": "a"}
	constrain(&p.Spec)
	return p
}

func near(t corev1.PodAffinityTerm) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{t}}}
	}
}

func apart(s *corev1.PodSpec) {
	s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term("a")}}}
}

func evenly(s *corev1.PodSpec) {
	s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: term("a").LabelSelector,
	}}
}

// TestPodWaitsForOthers checks that a pod whose constraints on others hold on no node is placed when another pod is
// added, removed, changed or being deleted, or when a node or a namespace changes.
func TestPodWaitsForOthers(t *testing.T) {
	cordoned := inZone("2", "n2")
	cordoned.Spec.Unschedulable = true
	ofTeam := term("a")
	ofTeam.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	for name, test := range map[string]struct {
		there []runtime.Object
		pod   *corev1.Pod
		then  func(*cluster) error
	}{
		"the pod comes that it needs": {
			[]runtime.Object{inZone("1", "n1")},
			waiting(near(term("b"))),
			func(c *cluster) error {
				c.create(placed("b", "b", ""))
				return nil
			},
		},
		"the pod goes that it avoids": {
			[]runtime.Object{inZone("1", "n1"), placed("other", "a", "n1")},
			waiting(apart),
			func(c *cluster) error {
				return c.CoreV1().Pods("ns").Delete(c.t.Context(), "other", metav1.DeleteOptions{})
			},
		},
		"the pod has other labels": {
			[]runtime.Object{inZone("1", "n1"), placed("other", "a", "n1")},
			waiting(apart),
			func(c *cluster) error {
				_, err := c.CoreV1().Pods("ns").Update(c.t.Context(), placed("other", "b", "n1"), metav1.UpdateOptions{})
				return err
			},
		},
		"the node has another label": {
			[]runtime.Object{inZone("1", "n1"), inZone("1", "n2"), placed("other", "a", "n1")},
			waiting(apart),
			func(c *cluster) error {
				_, err := c.CoreV1().Nodes().Update(c.t.Context(), inZone("2", "n2"), metav1.UpdateOptions{})
				return err
			},
		},
		"the namespace has another label": {
			[]runtime.Object{inZone("1", "n1"), placed("other", "a", "n1"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}},
			waiting(near(ofTeam)),
			func(c *cluster) error {
				ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{"team": "a"}}}
				_, err := c.CoreV1().Namespaces().Update(c.t.Context(), ns, metav1.UpdateOptions{})
				return err
			},
		},
		"a pod of the full zone is being deleted": {
			[]runtime.Object{inZone("1", "n1"), cordoned, placed("other", "a", "n1")},
			waiting(evenly),
			func(c *cluster) error {
				p := placed("other", "a", "n1")
				p.DeletionTimestamp, p.Finalizers = new(metav1.Now()), []string{"x/y"}
				_, err := c.CoreV1().Pods("ns").Update(c.t.Context(), p, metav1.UpdateOptions{})
				return err
			},
		},
		"the empty zone is gone": {
			[]runtime.Object{inZone("1", "n1"), cordoned, placed("other", "a", "n1")},
			waiting(evenly),
			func(c *cluster) error {
				return c.CoreV1().Nodes().Delete(c.t.Context(), "n2", metav1.DeleteOptions{})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, test.there...)
			c.run()
			c.create(test.pod)
			c.isUnschedulable("waiting")
			if err := test.then(c); err != nil {
				t.Fatal(err)
			}
			eventually.Holds(t, "the pod is bound", func() bool { return c.get("waiting").Spec.NodeName != "" })
		})
	}
}

// TestAntiAffinityBetweenPlacements checks that pods that avoid each other are not placed together, although the cache
// does not show the bindings yet. The surplus pod is reported.
func TestAntiAffinityBetweenPlacements(t *testing.T) {
	c := newCluster(t, inZone("1", "n1"), inZone("2", "n2"))
	for _, name := range []string{"p1", "p2", "p3"} {
		p := waiting(apart)
		p.Name, p.UID = name, types.UID(name)
		c.create(p)
	}
	c.run()
	on := map[string]int{}
	eventually.Holds(t, "two are bound, and one is reported", func() bool {
		clear(on)
		for _, name := range []string{"p1", "p2", "p3"} {
			p := c.get(name)
			switch {
			case p.Spec.NodeName != "":
				on[p.Spec.NodeName]++
			case len(p.Status.Conditions) == 1:
				on[p.Status.Conditions[0].Message]++
			}
		}
		return len(on) == 3
	})
	const want = "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."
	if on["n1"] != 1 || on["n2"] != 1 || on[want] != 1 {
		t.Errorf("the pods are on %v", on)
	}
}
