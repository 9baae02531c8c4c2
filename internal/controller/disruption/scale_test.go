package disruption

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// scaleServer serves example.com/v1 with clusters, which can be scaled, and backups, which
// cannot, and jobs of the core group. There is one cluster, db of team, with three replicas.
func scaleServer(t *testing.T) kubernetes.Interface {
	t.Helper()
	answers := map[string]any{
		"/apis/example.com/v1": metav1.APIResourceList{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{
			{Name: "clusters", Kind: "Cluster"}, {Name: "clusters/scale", Kind: "Scale"}, {Name: "clusters/status", Kind: "Cluster"}, {Name: "backups", Kind: "Backup"},
		}},
		"/api/v1": metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "replicationcontrollers", Kind: "ReplicationController"}, {Name: "replicationcontrollers/scale", Kind: "Scale"},
		}},
		"/apis/example.com/v1/namespaces/team/clusters/db/scale": autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: "db", UID: "db-uid"}, Spec: autoscalingv1.ScaleSpec{Replicas: 3},
		},
		"/api/v1/namespaces/team/replicationcontrollers/old/scale": autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: "old", UID: "old-uid"}, Spec: autoscalingv1.ScaleSpec{Replicas: 2},
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		switch {
		case strings.HasPrefix(r.URL.Path, "/apis/down"):
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case !ok:
			answer = metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
		case strings.HasSuffix(r.URL.Path, "/scale") && r.Header.Get("Accept") != runtime.ContentTypeJSON:
			t.Errorf("%s: Accept: %s", r.URL.Path, r.Header.Get("Accept"))
		}
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestLiveScale(t *testing.T) {
	client := scaleServer(t)
	for name, test := range map[string]struct {
		apiVersion, kind, name string
		uid                    types.UID
		replicas               int32 // -1: there is no such controller
		fails                  string
	}{
		"a custom resource":     {"example.com/v1", "Cluster", "db", "db-uid", 3, ""},
		"in the core group":     {"v1", "ReplicationController", "old", "old-uid", 2, ""},
		"recreated":             {"example.com/v1", "Cluster", "db", "another", -1, ""},
		"gone":                  {"example.com/v1", "Cluster", "gone", "gone-uid", -1, ""},
		"another path":          {"example.com/v1", "Cluster", "../clusters/db", "db-uid", -1, ""},
		"cannot be scaled":      {"example.com/v1", "Backup", "db", "db-uid", -1, "backups.example.com does not implement the scale subresource"},
		"a kind that is none":   {"example.com/v1", "Sandwich", "db", "db-uid", -1, `no matches for kind "Sandwich" in version "example.com/v1"`},
		"a group that is none":  {"example.org/v1", "Cluster", "db", "db-uid", -1, `no matches for kind "Cluster" in version "example.org/v1"`},
		"a version that is not": {"a/b/c", "Cluster", "db", "db-uid", -1, "unexpected GroupVersion string: a/b/c"},
	} {
		got, err := liveScale(t.Context(), client, "team", &metav1.OwnerReference{APIVersion: test.apiVersion, Kind: test.kind, Name: test.name, UID: test.uid})
		_, uncountable := errors.AsType[uncountableError](err)
		if test.fails == "" && err != nil || test.fails != "" && (!uncountable || err.Error() != test.fails) {
			t.Errorf("%s: %v", name, err)
		}
		if (got == nil) != (test.replicas < 0) || got != nil && (got.replicas != test.replicas || got.controller != test.uid) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	// A server that is down says nothing about the kinds that it has.
	_, err := liveScale(t.Context(), client, "team", &metav1.OwnerReference{APIVersion: "down.example.com/v1", Kind: "Cluster", Name: "db"})
	if _, uncountable := errors.AsType[uncountableError](err); err == nil || uncountable {
		t.Errorf("a server that is down: %v", err)
	}
}
