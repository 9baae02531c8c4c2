package placement_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/node/scheduler/placement"
)

// BenchmarkPlace places a pod among 20 000 pods of 200 apps on 1000 nodes in 3 zones. The pod has the same constraints
// as the others.
func BenchmarkPlace(b *testing.B) {
	const apps = 200
	for name, constrain := range map[string]func(app string) func(*corev1.Pod){
		"plain":         func(string) func(*corev1.Pod) { return func(*corev1.Pod) {} },
		"anti-affinity": func(app string) func(*corev1.Pod) { return apart(aTerm("name", app)) },
		"spread": func(string) func(*corev1.Pod) {
			return spread(func(c *corev1.TopologySpreadConstraint) { c.MaxSkew = 1000 })
		},
	} {
		b.Run(name, func(b *testing.B) {
			var all []*placement.Node
			for i := range 1000 {
				all = append(all, aNode(fmt.Sprint("n", i), func(n *corev1.Node) {
					n.Labels["zone"] = fmt.Sprint(i % 3)
					n.Status.Allocatable = list("400", "800Gi", "1000")
				}))
			}
			c := clusterOf(all...)
			for i := range 20_000 {
				app := fmt.Sprint("app-", i%apps)
				all[i/20].Add(aPod(fmt.Sprint("p", i), labelled(app), constrain(app)))
			}
			pod := aPod("p", labelled("app-7"), constrain("app-7"))
			for b.Loop() {
				if _, err := c.Place(pod); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
