package disruption

import (
	"context"
	"fmt"
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The controllers of some pods may together desire more pods than a number of 31 bits, and a custom resource may have a
// scale that is no number of pods. Neither makes the budget allow more disruptions.
func TestSumOfScalesDoesNotOverflow(t *testing.T) {
	for name, test := range map[string]struct {
		replicas []int32
		want     int32
	}{
		"few":             {[]int32{3, 4}, 7},
		"the most":        {[]int32{math.MaxInt32, math.MaxInt32, 3}, math.MaxInt32},
		"a whole circle":  {[]int32{math.MaxInt32, math.MaxInt32, 2, 1}, math.MaxInt32},
		"fewer than none": {[]int32{-5, 3}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scales{live: func(_ context.Context, _ string, ref *metav1.OwnerReference) (*scale, error) {
				var i int
				if _, err := fmt.Sscan(ref.Name, &i); err != nil {
					return nil, err
				}
				return &scale{ref.UID, test.replicas[i]}, nil
			}}
			var list []*corev1.Pod
			for i := range test.replicas {
				list = append(list, pod(fmt.Sprint(i), func(p *corev1.Pod) {
					p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Cluster", Name: p.Name, UID: types.UID(p.Name), Controller: new(true)}}
				}))
			}
			total, unmanaged, err := s.sum(t.Context(), list)
			if total != test.want || len(unmanaged) > 0 || err != nil {
				t.Errorf("%d, without a controller %v: %v", total, unmanaged, err)
			}
		})
	}
}

func TestLargestBudgets(t *testing.T) {
	for name, test := range map[string]struct {
		budget  func(*policyv1.PodDisruptionBudget)
		scale   int32
		desired int32
		allowed int32
	}{
		"the largest minimum":            {minAvailable("2147483647"), 0, math.MaxInt32, 0},
		"all of the largest scale":       {minAvailable("100%"), math.MaxInt32, math.MaxInt32, 0},
		"the largest maximum":            {maxUnavailable("2147483647"), 2, 0, 2},
		"none of the largest scale":      {maxUnavailable("0"), math.MaxInt32, math.MaxInt32, 0},
		"the largest of the largest":     {maxUnavailable("2147483647"), math.MaxInt32, 0, 2},
		"a percent of the largest scale": {maxUnavailable("1%"), math.MaxInt32, math.MaxInt32 - 21474837, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Decide(pdb(test.budget), Observed{Pods: []*corev1.Pod{pod("a"), pod("b")}, Scale: test.scale}, epoch)
			if s := p.Status; err != nil || s.DesiredHealthy != test.desired || s.DisruptionsAllowed != test.allowed {
				t.Errorf("%+v: %v", s, err)
			}
		})
	}
}
