package apiserver_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/faults"
)

// anomalies returns the kinds and texts of the anomalies.
func anomalies(t *testing.T, config *rest.Config) []string {
	t.Helper()
	status, body := askForFaults(t, config, http.MethodGet, "")
	var state faults.State
	if err := json.Unmarshal([]byte(body), &state); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s (%v)", status, body, err)
	}
	found := []string{}
	for _, a := range state.Anomalies {
		found = append(found, strings.Join([]string{a.Client, a.Kind, a.Resource, a.Namespace, a.Name, a.Text}, " "))
	}
	return found
}

// A client whose watch is behind creates a child twice, and takes the finalizer of another client away. The anomalies name
// both; they end with the faults of a reset.
func TestAnomalies(t *testing.T) {
	s := startServer(t, nil)
	config := s.manager(t)
	fail(t, config, "watch-lag delay=1h")
	other := rest.CopyConfig(config)
	other.UserAgent = "kubectl/v1.37.2"
	client := typed(t, config).CoreV1().ConfigMaps("default")
	w, err := client.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	owner, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "child-", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))},
	}}
	if _, err := client.Create(t.Context(), child, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := func(config *rest.Config, text string) {
		t.Helper()
		if _, err := typed(t, config).CoreV1().ConfigMaps("default").Patch(t.Context(), "owner", types.MergePatchType, []byte(text), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	patch(config, `{"data":{"children":"1"}}`)
	if found := anomalies(t, config); len(found) != 0 {
		t.Fatalf("one child: %q", found)
	}
	second, err := client.Create(t.Context(), child, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	patch(other, `{"metadata":{"finalizers":["example.com/other"]}}`)
	patch(config, `{"metadata":{"finalizers":["example.com/own"]}}`)
	found := anomalies(t, config)
	if len(found) != 2 || !strings.HasPrefix(found[0], "manager duplicate-child configmaps default "+second.Name+" the client created configmaps default/"+second.Name) ||
		!strings.HasPrefix(found[1], "manager entry-lost configmaps default owner ") || !strings.Contains(found[1], "removed the finalizer example.com/other, which kubectl had added") {
		t.Fatalf("the anomalies are %q", found)
	}
	s.RestartFaults()
	if found := anomalies(t, config); len(found) != 0 {
		t.Errorf("after a restart: %q", found)
	}
}
