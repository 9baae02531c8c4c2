package client_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// excessiveServer has one pod whose metadata exceed the collector's bounds.
type excessiveServer struct {
	pod  metav1.PartialObjectMetadata
	sent []byte // of the last request but GET
}

func (s *excessiveServer) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		s.sent = make([]byte, r.ContentLength)
		_, _ = io.ReadFull(r.Body, s.sent)
	}
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(s.pod)
}

func excessive(t *testing.T) (*excessiveServer, *client.Client, ownership.Object) {
	t.Helper()
	long := strings.Repeat("x", 100_000)
	s := &excessiveServer{pod: metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "a", UID: types.UID("self-" + long), ResourceVersion: "7", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "one", UID: types.UID("1-" + long), BlockOwnerDeletion: new(true)},
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "two", UID: "2"},
			{APIVersion: long + "/v1", Kind: "ReplicaSet", Name: "three" + long, UID: types.UID("3-" + long), Controller: new(true)},
		}},
	}}
	for n := range 1000 {
		s.pod.Finalizers = append(s.pod.Finalizers, fmt.Sprint("example.com/", n))
	}
	s.pod.Finalizers[900] = ownership.FinalizerForeground
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	c, err := client.New(&rest.Config{Host: server.URL, QPS: -1}, mapping{})
	if err != nil {
		t.Fatal(err)
	}
	observed, err := c.Get(t.Context(), podRef("a"))
	if err != nil {
		t.Fatal(err)
	}
	return s, c, observed
}

// R16: a patch writes owner references and finalizers as the server has them, not as the collector keeps them.
func TestR16_PatchesKeepLongTexts(t *testing.T) {
	s, c, observed := excessive(t)
	var patch struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	remaining := []ownership.Reference{observed.Owners[0], observed.Owners[2]}
	remaining[0].BlockOwnerDeletion = ownership.False
	if _, err := c.PatchOwners(t.Context(), observed, remaining); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(s.sent, &patch); err != nil {
		t.Fatal(err)
	}
	want := []metav1.OwnerReference{s.pod.OwnerReferences[0], s.pod.OwnerReferences[2]}
	want[0].BlockOwnerDeletion = new(false)
	if diff := cmp.Diff(want, patch.Metadata.OwnerReferences); diff != "" || patch.Metadata.UID != s.pod.UID {
		t.Errorf("UID of %d bytes, owners (-want +got):\n%.2000s", len(patch.Metadata.UID), diff)
	}

	var left []string
	for _, f := range observed.Finalizers {
		if f != ownership.FinalizerForeground {
			left = append(left, f)
		}
	}
	if _, err := c.PatchFinalizers(t.Context(), observed, left); err != nil {
		t.Fatal(err)
	}
	patch.Metadata = metav1.ObjectMeta{}
	if err := json.Unmarshal(s.sent, &patch); err != nil {
		t.Fatal(err)
	}
	if got := len(patch.Metadata.Finalizers); got != 999 || patch.Metadata.Finalizers[900] != "example.com/901" {
		t.Errorf("%d finalizers, want 999", got)
	}
}

// R12: a DELETE of an object with a long UID is conditioned on that UID; and nothing is written if the object is not
// the observed one.
func TestR12_LongUIDsArePreconditions(t *testing.T) {
	s, c, observed := excessive(t)
	if err := c.Delete(t.Context(), observed, verdict.Background); err != nil {
		t.Fatal(err)
	}
	var options metav1.DeleteOptions
	if err := json.Unmarshal(s.sent, &options); err != nil {
		t.Fatal(err)
	}
	if p := options.Preconditions; p == nil || p.UID == nil || *p.UID != s.pod.UID {
		t.Errorf("preconditions are not those of the object")
	}
	s.sent = nil
	s.pod.ResourceVersion = "8"
	_, ownersErr := c.PatchOwners(t.Context(), observed, observed.Owners[:1])
	_, finalizersErr := c.PatchFinalizers(t.Context(), observed, observed.Finalizers)
	for what, err := range map[string]error{"delete": c.Delete(t.Context(), observed, verdict.Background), "owners": ownersErr, "finalizers": finalizersErr} {
		if !apierrors.IsConflict(err) {
			t.Errorf("%s: %.200v, want a conflict", what, err)
		}
	}
	if s.sent != nil {
		t.Error("something was written")
	}
}
