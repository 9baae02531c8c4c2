package nodelifecycle

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestOutageWhileNoNodeIsReady(t *testing.T) {
	excluded := aNode("True")
	excluded.Labels = map[string]string{labelExcluded: ""}
	for name, test := range map[string]struct {
		nodes []*corev1.Node
		total bool
	}{
		"no nodes":                     {nil, false},
		"one that is ready":            {[]*corev1.Node{aNode("Unknown"), aNode("True"), aNode("False")}, false},
		"none":                         {[]*corev1.Node{aNode("Unknown"), aNode("False"), aNode("")}, true},
		"a single one":                 {[]*corev1.Node{aNode("Unknown")}, true},
		"one that does not count":      {[]*corev1.Node{aNode("Unknown"), excluded}, true},
		"only one that does not count": {[]*corev1.Node{excluded}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if o := (outage{}).observe(test.nodes, epoch); o.total != test.total || !o.ended.IsZero() {
				t.Errorf("%+v", o)
			}
			o := outage{total: true}.observe(test.nodes, epoch)
			if o.total != test.total || o.ended.Equal(epoch) == test.total {
				t.Errorf("after an outage: %+v", o)
			}
		})
	}
}

func TestOutageSparesPods(t *testing.T) {
	const noExecute = corev1.TaintEffectNoExecute
	evicting := []corev1.Taint{taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule), taint(corev1.TaintNodeUnreachable, noExecute), taint(corev1.TaintNodeNotReady, noExecute), taint("mine", noExecute)}
	for name, test := range map[string]struct {
		outage outage
		taints int
		again  time.Duration
	}{
		"no outage":               {outage{}, 4, 0},
		"an outage":               {outage{total: true}, 2, 0},
		"an outage after another": {outage{total: true, ended: epoch.Add(-time.Second)}, 2, 0},
		"in the grace period":     {outage{ended: epoch.Add(-10 * time.Second)}, 2, grace - 10*time.Second},
		"after the grace period":  {outage{ended: epoch.Add(-grace)}, 4, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := test.outage.spare(health{Taints: append([]corev1.Taint{}, evicting...)}, grace, epoch)
			if len(h.Taints) != test.taints || h.RequeueAfter != test.again {
				t.Errorf("%+v, want %d taints, again in %s", h, test.taints, test.again)
			}
		})
	}
}
