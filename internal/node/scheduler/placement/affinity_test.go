package placement_test

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/coppice-dev/coppice/internal/node/scheduler/placement"
)

const (
	noAffinity     = "node(s) didn't match pod affinity rules"
	noAntiAffinity = "node(s) didn't match pod anti-affinity rules"
	avoided        = "node(s) didn't satisfy existing pods anti-affinity rules"
	skewed         = "node(s) didn't match pod topology spread constraints"
	noLabel        = skewed + " (missing required label)"
)

// in is a node in a zone.
func in(zone, name string, pods ...*corev1.Pod) *placement.Node {
	return holding(aNode(name, func(n *corev1.Node) { n.Labels["zone"] = zone }), pods...)
}

func labelled(app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"app": app} }
}

func of(namespace string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Namespace = namespace }
}

func app(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
}

func aTerm(topologyKey, of string, change ...func(*corev1.PodAffinityTerm)) corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{TopologyKey: topologyKey, LabelSelector: app(of)}
	for _, c := range change {
		c(&t)
	}
	return t
}

func affinityOf(p *corev1.Pod) *corev1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}}
	}
	return p.Spec.Affinity
}

func near(terms ...corev1.PodAffinityTerm) func(*corev1.Pod) {
	return func(p *corev1.Pod) { affinityOf(p).PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = terms }
}

func apart(terms ...corev1.PodAffinityTerm) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		affinityOf(p).PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = terms
	}
}

func rather(weight int32, t corev1.PodAffinityTerm) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		a := affinityOf(p)
		if weight > 0 {
			a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.WeightedPodAffinityTerm{{Weight: weight, PodAffinityTerm: t}}
		} else {
			a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.WeightedPodAffinityTerm{{Weight: -weight, PodAffinityTerm: t}}
		}
	}
}

func namespaces(names ...string) func(*corev1.PodAffinityTerm) {
	return func(t *corev1.PodAffinityTerm) { t.Namespaces = names }
}

func spread(change ...func(*corev1.TopologySpreadConstraint)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := corev1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: app("a")}
		for _, change := range change {
			change(&c)
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
}

func leaving(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }

func nodes(list ...*placement.Node) []*placement.Node { return list }

// place returns the node of the pod, or the reasons why there is none.
func place(t *testing.T, c *placement.Cluster, pod *corev1.Pod) string {
	t.Helper()
	node, err := c.Place(pod)
	if none, ok := errors.AsType[placement.Unplaced](err); ok {
		return none.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	return node.Name()
}

func none(reasons string, of int) string {
	return fmt.Sprintf("0/%d nodes are available: %s.", of, reasons)
}

func TestPodsAreNearAndAwayFromThoseTheySelect(t *testing.T) {
	a, b := labelled("a"), labelled("b")
	selecting := func(s *metav1.LabelSelector) func(*corev1.PodAffinityTerm) {
		return func(t *corev1.PodAffinityTerm) { t.NamespaceSelector = s }
	}
	nothing := func(t *corev1.PodAffinityTerm) { t.LabelSelector = nil }
	for name, test := range map[string]struct {
		pod   *corev1.Pod
		nodes []*placement.Node
		want  string
	}{
		"near":                       {aPod("p", near(aTerm("zone", "a"))), nodes(in("1", "n1"), in("2", "n2"), in("1", "n3", aPod("o", a, requests("3", "7Gi")))), "n1"},
		"near, none":                 {aPod("p", near(aTerm("zone", "a"))), nodes(in("1", "n1", aPod("o", b)), in("2", "n2")), none("2 "+noAffinity, 2)},
		"near, a leaving one":        {aPod("p", near(aTerm("name", "a"))), nodes(in("1", "n1"), in("1", "n2", aPod("o", a, leaving))), "n2"},
		"near, an ended one":         {aPod("p", near(aTerm("zone", "a"))), nodes(in("1", "n1", aPod("o", a, ended))), none("1 "+noAffinity, 1)},
		"near itself, first":         {aPod("p", a, near(aTerm("zone", "a"))), nodes(aNode("n0"), in("1", "n1")), "n1"},
		"near itself, not first":     {aPod("p", a, near(aTerm("name", "a"))), nodes(in("1", "n1"), in("1", "n2", aPod("o", a))), "n2"},
		"near itself and others":     {aPod("p", a, near(aTerm("zone", "a"), aTerm("zone", "b"))), nodes(in("1", "n1")), none("1 "+noAffinity, 1)},
		"near, both terms in one":    {aPod("p", near(aTerm("zone", "a"), aTerm("name", "b"))), nodes(in("1", "n1", aPod("o", a), aPod("q", b))), none("1 "+noAffinity, 1)},
		"near, without the label":    {aPod("p", a, near(aTerm("zone", "a"))), nodes(aNode("n0")), none("1 "+noAffinity, 1)},
		"near, other namespace":      {aPod("p", of("x"), near(aTerm("zone", "a"))), nodes(in("1", "n1", aPod("o", a, of("y")))), none("1 "+noAffinity, 1)},
		"near, that namespace":       {aPod("p", of("x"), near(aTerm("zone", "a", namespaces("y")))), nodes(in("1", "n1", aPod("o", a, of("y")))), "n1"},
		"near, not its own":          {aPod("p", of("x"), near(aTerm("zone", "a", namespaces("y")))), nodes(in("1", "n1", aPod("o", a, of("x")))), none("1 "+noAffinity, 1)},
		"near, all namespaces":       {aPod("p", of("x"), near(aTerm("zone", "a", selecting(&metav1.LabelSelector{})))), nodes(in("1", "n1", aPod("o", a, of("y")))), "n1"},
		"near, labelled namespaces":  {aPod("p", of("x"), near(aTerm("name", "a", selecting(app("y"))))), nodes(in("1", "n1", aPod("o", a, of("x"))), in("1", "n2", aPod("q", a, of("y")))), "n2"},
		"near, a nil selector":       {aPod("p", near(aTerm("zone", "a", nothing))), nodes(in("1", "n1", aPod("o", a))), none("1 "+noAffinity, 1)},
		"apart":                      {aPod("p", apart(aTerm("zone", "a"))), nodes(in("1", "n1", aPod("o", a)), in("1", "n2"), in("2", "n3")), "n3"},
		"apart, none":                {aPod("p", a, apart(aTerm("name", "a"))), nodes(in("1", "n1", aPod("o", a)), in("1", "n2", aPod("q", a))), none("2 "+noAntiAffinity, 2)},
		"apart, without the label":   {aPod("p", apart(aTerm("zone", "a"))), nodes(aNode("n0"), in("1", "n1", aPod("o", a))), "n0"},
		"apart, one of two":          {aPod("p", apart(aTerm("name", "a"), aTerm("zone", "b"))), nodes(in("1", "n1", aPod("o", b)), in("1", "n2"), in("2", "n3", aPod("q", a)), in("2", "n4")), "n4"},
		"apart, only from others":    {aPod("p", a, apart(aTerm("zone", "b"))), nodes(in("1", "n1", aPod("o", a))), "n1"},
		"avoided":                    {aPod("p", a), nodes(in("1", "n1", aPod("o", apart(aTerm("zone", "a")))), in("1", "n2"), in("2", "n3")), "n3"},
		"avoided, none":              {aPod("p", a), nodes(in("1", "n1", aPod("o", apart(aTerm("zone", "a")))), in("1", "n2")), none("2 "+avoided, 2)},
		"avoided, other labels":      {aPod("p", b), nodes(in("1", "n1", aPod("o", apart(aTerm("zone", "a"))))), "n1"},
		"avoided, other namespace":   {aPod("p", a, of("x")), nodes(in("1", "n1", aPod("o", of("y"), apart(aTerm("zone", "a"))))), "n1"},
		"avoided, that namespace":    {aPod("p", a, of("y")), nodes(in("1", "n1", aPod("o", of("x"), apart(aTerm("zone", "a", selecting(app("y"))))))), none("1 "+avoided, 1)},
		"avoided, by an ended one":   {aPod("p", a), nodes(in("1", "n1", aPod("o", ended, apart(aTerm("zone", "a"))))), "n1"},
		"avoided, by a leaving one":  {aPod("p", a), nodes(in("1", "n1", aPod("o", leaving, apart(aTerm("zone", "a"))))), none("1 "+avoided, 1)},
		"each other":                 {aPod("p", a, apart(aTerm("zone", "a"))), nodes(in("1", "n1", aPod("o", a, apart(aTerm("zone", "a"))))), none("1 "+noAntiAffinity, 1)},
		"resources are said first":   {aPod("p", a, requests("5", "1Gi"), apart(aTerm("zone", "a"))), nodes(in("1", "n1", aPod("o", a))), none("1 Insufficient cpu", 1)},
		"rather near":                {aPod("p", rather(1, aTerm("zone", "a"))), nodes(in("1", "n1"), in("2", "n2", aPod("o", a, requests("3", "7Gi")))), "n2"},
		"rather apart":               {aPod("p", rather(-1, aTerm("zone", "a"))), nodes(in("1", "n1", aPod("o", a)), in("2", "n2", aPod("q", requests("3", "7Gi")))), "n2"},
		"rather near more pods":      {aPod("p", rather(1, aTerm("zone", "a"))), nodes(in("1", "n1", aPod("o", a)), in("2", "n2", aPod("q", a), aPod("r", a))), "n2"},
		"rather near, with no other": {aPod("p", rather(1, aTerm("zone", "a"))), nodes(in("1", "n1", aPod("o", requests("3", "1Gi"))), in("2", "n2")), "n2"},
	} {
		t.Run(name, func(t *testing.T) {
			c := clusterOf(test.nodes...)
			for _, name := range []string{"x", "y"} {
				c.SetNamespace(name, labels.Set{"app": name})
			}
			if got := place(t, c, test.pod); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestSpreadConstraints(t *testing.T) {
	a := labelled("a")
	type change = func(*corev1.TopologySpreadConstraint)
	domains := func(n int32) change { return func(c *corev1.TopologySpreadConstraint) { c.MinDomains = &n } }
	skew := func(n int32) change { return func(c *corev1.TopologySpreadConstraint) { c.MaxSkew = n } }
	key := func(k string) change { return func(c *corev1.TopologySpreadConstraint) { c.TopologyKey = k } }
	soft := func(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway }
	everything := func(c *corev1.TopologySpreadConstraint) { c.LabelSelector = &metav1.LabelSelector{} }
	ignore, honor := corev1.NodeInclusionPolicyIgnore, corev1.NodeInclusionPolicyHonor
	affinityIgnored := func(c *corev1.TopologySpreadConstraint) { c.NodeAffinityPolicy = &ignore }
	taintsHonored := func(c *corev1.TopologySpreadConstraint) { c.NodeTaintsPolicy = &honor }
	keys := func(k ...string) change { return func(c *corev1.TopologySpreadConstraint) { c.MatchLabelKeys = k } }
	version := func(v string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Labels = map[string]string{"app": "a", "version": v} }
	}
	zone2 := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "2"} }
	tainted := func(zone, name string) *placement.Node {
		return aNode(name, taint(corev1.TaintEffectNoSchedule), func(n *corev1.Node) { n.Labels["zone"] = zone })
	}
	for name, test := range map[string]struct {
		pod   *corev1.Pod
		nodes []*placement.Node
		want  string
	}{
		"evenly":                        {aPod("p", a, spread()), nodes(in("1", "n1", aPod("o", a)), in("1", "n2"), in("2", "n3", aPod("big", requests("3", "7Gi")))), "n3"},
		"the skew allows it":            {aPod("p", a, spread(skew(2))), nodes(in("1", "n1", aPod("o", a)), in("2", "n3", aPod("big", requests("3", "7Gi")))), "n1"},
		"only where it does not fit":    {aPod("p", a, requests("2", "1Gi"), spread()), nodes(in("1", "n1", aPod("o", a)), in("2", "n2", aPod("big", requests("3", "7Gi")))), none("1 Insufficient cpu, 1 "+skewed, 2)},
		"itself does not count":         {aPod("p", spread()), nodes(in("1", "n1", aPod("o", a)), in("2", "n2", aPod("big", requests("3", "7Gi")))), "n1"},
		"those being deleted do not":    {aPod("p", a, spread()), nodes(in("1", "n1", aPod("o", a, leaving)), in("2", "n2", aPod("big", requests("3", "7Gi")))), "n1"},
		"those of other namespaces too": {aPod("p", a, of("x"), spread()), nodes(in("1", "n1", aPod("o", a, of("y"))), in("2", "n2", aPod("big", requests("3", "7Gi")))), "n1"},
		"without the label":             {aPod("p", a, spread()), nodes(aNode("n0"), in("1", "n1")), "n1"},
		"nowhere the label":             {aPod("p", a, spread()), nodes(aNode("n0")), none("1 "+noLabel, 1)},
		"too few domains":               {aPod("p", a, spread(domains(3))), nodes(in("1", "n1", aPod("o", a)), in("2", "n2", aPod("q", a))), none("2 "+skewed, 2)},
		"domains enough":                {aPod("p", a, spread(domains(2))), nodes(in("1", "n1", aPod("o", a)), in("2", "n2", aPod("q", a), aPod("r", a))), "n1"},
		"a domain that it may not use":  {aPod("p", a, zone2, spread()), nodes(in("1", "n1"), in("2", "n2", aPod("o", a))), "n2"},
		"it counts nevertheless":        {aPod("p", a, zone2, spread(affinityIgnored)), nodes(in("1", "n1"), in("2", "n2", aPod("o", a))), none("1 node(s) didn't match Pod's node affinity/selector, 1 "+skewed, 2)},
		"a tainted domain counts":       {aPod("p", a, spread()), nodes(tainted("1", "n1"), in("2", "n2", aPod("o", a))), none("1 "+skewed+", 1 node(s) had untolerated taint {k: v}", 2)},
		"it does not":                   {aPod("p", a, spread(taintsHonored)), nodes(tainted("1", "n1"), in("2", "n2", aPod("o", a))), "n2"},
		"of the same version":           {aPod("p", version("2"), spread(keys("version", "other"))), nodes(in("1", "n1", aPod("o", version("1"))), in("2", "n2", aPod("big", requests("3", "7Gi")))), "n1"},
		"selecting everything":          {aPod("p", a, spread(everything)), nodes(in("1", "n1", aPod("o", a), aPod("q", a)), in("2", "n2", aPod("big", requests("3", "7Gi")))), "n1"},
		"two constraints": {
			aPod("p", a, spread(), spread(key("name"))),
			nodes(in("1", "n1", aPod("o", a)), in("1", "n2"), in("2", "n3", aPod("q", a)), in("2", "n4", aPod("big", requests("3", "7Gi")), aPod("r", a))), "n2",
		},
		"rather":              {aPod("p", a, spread(soft)), nodes(in("1", "n1", aPod("o", a)), in("2", "n2", aPod("big", requests("3", "7Gi")))), "n2"},
		"rather with a label": {aPod("p", a, spread(soft)), nodes(aNode("n0"), in("2", "n2", aPod("big", requests("3", "7Gi")))), "n2"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := place(t, clusterOf(test.nodes...), test.pod); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestPodWaitsForThePodsThatItsConstraintsSelect checks that a pod waits for the pods that its required constraints select, and for no others.
func TestPodWaitsForThePodsThatItsConstraintsSelect(t *testing.T) {
	c := clusterOf(in("1", "n1", aPod("o", labelled("b"))))
	_, err := c.Place(aPod("p", near(aTerm("zone", "a")), apart(aTerm("zone", "b"))))
	waits, ok := errors.AsType[placement.Unplaced](err)
	if !ok {
		t.Fatal(err)
	}
	for app, want := range map[string]bool{"a": true, "b": true, "c": false} {
		if got := waits.Concerns(aPod("x", labelled(app))); got != want {
			t.Errorf("concerned by %s: %t, want %t", app, got, want)
		}
	}
}
