package reader

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// followed is a server with ConfigMaps, whose watches end after one event.
type followed struct {
	removed chan string // UIDs of objects that are removed during a watch
	begun   chan struct{}
}

func (f *followed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	kind := metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	if r.URL.Query().Get("watch") == "" {
		list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
		list.ResourceVersion = "7"
		_ = json.NewEncoder(w).Encode(list)
		return
	}
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	f.begun <- struct{}{}
	select {
	case <-r.Context().Done():
	case uid := <-f.removed:
		o := metav1.PartialObjectMetadata{TypeMeta: kind, ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid), ResourceVersion: "8"}}
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "DELETED", "object": o})
	}
}

// A reading is asked for after each beginning of a watch, and after the removal of an object that is followed.
func TestFollowerLosesNoRemoval(t *testing.T) {
	t.Parallel()
	f := &followed{removed: make(chan string), begun: make(chan struct{})}
	server := httptest.NewServer(f)
	defer server.Close()
	follower, err := NewFollower(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer follower.Stop()
	defer cancel()
	maps := &inventory.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"), Kind: "ConfigMap", Namespaced: true}
	var objects []*inventory.Object
	for _, uid := range []string{"a", "b"} {
		objects = append(objects, &inventory.Object{Object: ownership.Object{UID: ownership.UID(uid), Namespace: "shop"}, Resource: maps})
	}
	follower.Follow(ctx, objects)
	for n, uid := range []string{"a", "stranger", "b"} {
		<-f.begun
		<-follower.Changed() // of the watch
		f.removed <- uid
		if uid != "stranger" {
			<-follower.Changed()
		}
		if want := []int{1, 1, 0}[n]; follower.Left() != want {
			t.Errorf("after %s, %d objects are left, want %d", uid, follower.Left(), want)
		}
	}
}
