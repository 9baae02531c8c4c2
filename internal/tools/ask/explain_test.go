package ask

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/testing/wireserver"
)

// A watch of several objects goes on while one of them exists.
func TestExplainNamesTheGoneAmongOthers(t *testing.T) {
	server := wireserver.New(wireserver.Resource{Name: "configmaps", Kind: "ConfigMap"})
	for _, name := range []string{"a", "b"} {
		server.Put("configmaps", wireserver.Owned(name, types.UID(name)))
	}
	s := &Sources{Config: server.Config(), Namespace: metav1.NamespaceDefault, Address: NoCollector, Now: func() time.Time { return time.Unix(1_800_000_000, 0) }}
	q := Existence{Objects: Objects{Args: []string{"configmap/a", "configmap/b"}}, Watch: true}
	never := Existence{Objects: Objects{Args: []string{"configmap/a", "configmap/never"}}, Watch: true}
	if answer, _ := s.Explain(t.Context(), never); !slices.Equal(answer.Gone, []string{"configmaps/never"}) {
		t.Errorf("the first answer names %q", answer.Gone)
	}
	for n, want := range [][]string{nil, {"configmaps/a"}, {"configmaps/a", "configmaps/b"}} {
		answer, err := s.Explain(t.Context(), q)
		if err != nil || !slices.Equal(answer.Gone, want) || len(answer.Objects) != 2-len(want) {
			t.Fatalf("answer %d: %v, %d objects, gone %q; want %q", n, err, len(answer.Objects), answer.Gone, want)
		}
		q.Before = answer.Inventory
		server.Remove("configmaps", []types.UID{"a", "b", ""}[n])
	}
}
