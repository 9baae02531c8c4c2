package coppicetest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/coppicetest"
	"github.com/coppice-dev/coppice/coppicetest/leaks"
)

// TestPlantedLeaksAreFound plants leaks on a server.
func TestPlantedLeaksAreFound(t *testing.T) {
	t.Parallel()
	plane := coppicetest.Start(t)
	s := newServer(t, plane)
	root := s.configMap("root", "")
	s.configMap("child", "", root)
	s.create("/api/v1/namespaces/default/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"forgotten","labels":{"root":"root"}}}`)
	s.configMap("stuck", `,"finalizers":["example.com/cleanup"]`, root)
	s.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole",
		"metadata":{"name":"wide","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"root","uid":"`+root.uid()+`"}]}}`)
	s.create(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"mistaken","ownerReferences":[
		{"apiVersion":"v1","kind":"ConfigMap","name":"child","uid":"not-the-uid-of-child"}]}}`)
	plane.See(t)
	s.delete(configMaps+"/root", "")
	var got []string
	for _, leak := range plane.Leaks(t) {
		got = append(got, leak.Object.Name+" "+string(leak.Rule))
	}
	slices.Sort(got)
	want := []string{"forgotten " + string(leaks.LabelOnly), "mistaken " + string(leaks.Mistaken), "stuck " + string(leaks.Stuck), "wide " + string(leaks.OutOfScope)}
	if !slices.Equal(got, want) {
		t.Errorf("leaks:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	plane.Mark(t)
	plane.NoLeaks(t)
}
