package protection

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// R28: a Binding changes no protection. The policy for other servers says the same.
func TestR28_BindingsDoNotProtect(t *testing.T) {
	policy, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "kustomize", "protect-webhook", "webhook.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		binding metav1.ObjectMeta
		refused bool
	}{
		"nothing":                  {metav1.ObjectMeta{}, false},
		"the topology of the node": {metav1.ObjectMeta{Labels: map[string]string{"topology.kubernetes.io/zone": "a"}}, false},
		"another annotation":       {metav1.ObjectMeta{Annotations: map[string]string{"coppice.device/a": "b"}}, false},
		"a label that protects":    {metav1.ObjectMeta{Labels: map[string]string{"a": "b", Label: string(Always)}}, true},
		"an entry":                 {metav1.ObjectMeta{Annotations: map[string]string{"a": "b", Annotation: "[]"}}, true},
		"the mark of checked ones": {metav1.ObjectMeta{Annotations: map[string]string{Checked: "u"}}, true},
	} {
		err := CheckBinding(&test.binding)
		if (err != nil) != test.refused {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && !strings.Contains(string(policy), "message: "+err.Error()+"\n") {
			t.Errorf("the policy does not say %q", err)
		}
	}
}
