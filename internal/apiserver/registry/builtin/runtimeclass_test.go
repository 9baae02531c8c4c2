package builtin

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
)

// TestRuntimeClassOfAPod checks that a pod gets the overhead of its runtime class, and the constraints for the nodes
// with the runtime.
func TestRuntimeClassOfAPod(t *testing.T) {
	p := newFakeServer(t)
	p.create(`{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: plain}, handler: plain}`)
	p.create(`{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: heavy}, handler: heavy, overhead: {podFixed: {cpu: 250m}}, ` +
		`scheduling: {nodeSelector: {runtime: heavy}, tolerations: [{key: heavy, operator: Exists}, {key: mine, operator: Exists}]}}`)
	p.create(`{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: anywhere}, handler: heavy, scheduling: {tolerations: [{operator: Exists}]}}`)
	const lost = ",node.kubernetes.io/not-ready:NoExecute,node.kubernetes.io/unreachable:NoExecute"
	for name, test := range map[string]struct {
		spec                            string // of the pod
		overhead, selector, tolerations string
		refusal                         string
	}{
		"none":              {"", "", "", lost, ""},
		"overhead of none":  {"overhead: {cpu: 1}", "", "", "", "Pod Overhead set without corresponding RuntimeClass defined Overhead"},
		"unknown":           {"runtimeClassName: other", "", "", "", `RuntimeClass "other" not found`},
		"plain":             {"runtimeClassName: plain", "", "", lost, ""},
		"overhead of plain": {"runtimeClassName: plain, overhead: {cpu: 1}", "", "", "", "Pod Overhead set without"},
		"heavy":             {"runtimeClassName: heavy", "250m", "runtime=heavy", lost + ",heavy:,mine:", ""},
		"same overhead":     {"runtimeClassName: heavy, overhead: {cpu: 0.25}", "250m", "runtime=heavy", lost + ",heavy:,mine:", ""},
		"other overhead":    {"runtimeClassName: heavy, overhead: {cpu: 1}", "", "", "", "Pod's Overhead doesn't match"},
		"selector":          {"runtimeClassName: heavy, nodeSelector: {disk: ssd}", "250m", "disk=ssd,runtime=heavy", lost + ",heavy:,mine:", ""},
		"other selector":    {"runtimeClassName: heavy, nodeSelector: {runtime: light}", "", "", "", "conflict: runtimeClass.scheduling.nodeSelector[runtime] = heavy; pod.spec.nodeSelector[runtime] = light"},
		"narrower":          {"runtimeClassName: heavy, tolerations: [{key: mine, value: a, operator: Equal}]", "250m", "runtime=heavy", lost + ",heavy:,mine:", ""},
		"everything":        {"runtimeClassName: anywhere", "", "", ",:", ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := strings.TrimPrefix(test.spec+", ", ", ")
			obj, err := p.try(`{apiVersion: v1, kind: Pod, metadata: {generateName: a-}, spec: {` + spec + `containers: [{name: a, image: a}]}}`)
			if test.refusal != "" {
				if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.refusal) {
					t.Fatalf("%v, want %s", err, test.refusal)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := obj.(*corev1.Pod).Spec
			cpu := ""
			if q, ok := got.Overhead[corev1.ResourceCPU]; ok {
				cpu = q.String()
			}
			tolerations := ""
			for _, toleration := range got.Tolerations {
				tolerations += "," + toleration.Key + ":" + string(toleration.Effect)
			}
			selector := strings.TrimPrefix(table.Labels(got.NodeSelector), table.None)
			if cpu != test.overhead || selector != test.selector || tolerations != test.tolerations {
				t.Errorf("overhead %q, selector %q, tolerations %q", cpu, selector, tolerations)
			}
		})
	}
}
