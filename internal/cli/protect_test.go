package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// A patch is conditioned on the version that was read, and there is no patch without a change.
func TestPatchOf(t *testing.T) {
	list := `[{"apiVersion":"v1","kind":"ConfigMap","namespace":"shop","name":"web"}]`
	object := func(label, annotation string) *metav1.ObjectMeta {
		m := &metav1.ObjectMeta{UID: "u", ResourceVersion: "7"}
		if label != "" {
			m.Labels = map[string]string{protection.Label: label}
		}
		if annotation != "" {
			m.Annotations = map[string]string{protection.Annotation: annotation}
		}
		return m
	}
	patch := func(label, annotation any) map[string]any {
		return map[string]any{"metadata": map[string]any{
			"uid": "u", "resourceVersion": "7",
			"labels": map[string]any{protection.Label: label}, "annotations": map[string]any{protection.Annotation: annotation},
		}}
	}
	says := func(m *metav1.ObjectMeta, value string) *metav1.ObjectMeta {
		metav1.SetMetaDataAnnotation(m, protection.Checked, value)
		return m
	}
	checked := func(label, annotation, value any) map[string]any {
		p := patch(label, annotation)
		p["metadata"].(map[string]any)["annotations"].(map[string]any)[protection.Checked] = value
		return p
	}
	for name, test := range map[string]struct {
		m       metav1.Object
		p       protection.Protection
		checked string
		want    map[string]any
	}{
		"protect":             {object("", ""), protection.New("always", ""), "", patch("always", nil)},
		"as it is":            {object("always", ""), protection.New("always", ""), "", nil},
		"another mode":        {object("always", ""), protection.New("cascading", ""), "", patch("cascading", nil)},
		"outlives":            {object("always", ""), protection.New("outlives", list), "", patch("outlives", list)},
		"outlives as before":  {object("outlives", list), protection.New("outlives", list), "", nil},
		"no longer outlives":  {object("outlives", list), protection.New("always", ""), "", patch("always", nil)},
		"unprotect":           {object("outlives", list), protection.Protection{}, "", patch(nil, nil)},
		"not protected":       {object("", ""), protection.Protection{}, "", nil},
		"checked":             {object("outlives", list), protection.New("outlives", list), "c", checked("outlives", list, "c")},
		"checked already":     {says(object("outlives", list), "c"), protection.New("outlives", list), "c", nil},
		"checked before":      {says(object("outlives", list), "b"), protection.New("outlives", list), "c", checked("outlives", list, "c")},
		"may stay checked":    {says(object("always", ""), "c"), protection.New("outlives", list), "", patch("outlives", list)},
		"no longer checked":   {says(object("outlives", list), "c"), protection.Protection{}, "", checked(nil, nil, nil)},
		"a value of no sense": {object("maybe", ""), protection.Protection{}, "", patch(nil, nil)},
	} {
		text, err := patchOf(test.m, test.p, test.checked)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if text != nil {
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestSameOther(t *testing.T) {
	a := protection.Outlived{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web"}
	for name, test := range map[string]struct {
		b    protection.Outlived
		want bool
	}{
		"equal":                     {a, true},
		"another version":           {protection.Outlived{APIVersion: "apps/v1beta1", Kind: "Deployment", Namespace: "shop", Name: "web"}, true},
		"in the object's namespace": {protection.Outlived{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, true},
		"in another namespace":      {protection.Outlived{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "billing", Name: "web"}, false},
		"a finalizer":               {protection.Outlived{Finalizer: "web"}, false},
	} {
		if got := same(a, test.b, "shop"); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Ctrl-C completes the write under way, which the command reports, and begins no other.
func TestInterruptedProtectionIsReported(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		interrupt()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata"}`)
	}))
	t.Cleanup(server.Close)
	var f protectFlags
	c := &cobra.Command{}
	f.add(c)
	if err := c.ParseFlags([]string{"--server", server.URL}); err != nil {
		t.Fatal(err)
	}
	w, err := f.begin(ctx, []string{"configmap/a"}, Streams{Out: io.Discard, Err: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	mapping := &meta.RESTMapping{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}}
	always := func(*meta.RESTMapping, metav1.Object) (protection.Protection, error) {
		return protection.New(string(protection.Always), ""), nil
	}
	first, err := w.write(mapping, &metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "a"}, always)
	if err != nil || !first.Changed {
		t.Errorf("the write under way: %v, %+v", err, first)
	}
	if _, err := w.write(mapping, &metav1.ObjectMeta{Namespace: "shop", Name: "b", UID: "b"}, always); !errors.Is(err, context.Canceled) {
		t.Errorf("the next write: %v", err)
	}
}

// A webhook that denies the label with the code of a conflict is not asked again.
func TestDenialOfALabelIsNoConflict(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409,
			"message": "admission webhook \"labels.example.com\" denied the request: not now"}`)
	}))
	t.Cleanup(server.Close)
	var f protectFlags
	c := &cobra.Command{}
	f.add(c)
	if err := c.ParseFlags([]string{"--server", server.URL}); err != nil {
		t.Fatal(err)
	}
	w, err := f.begin(t.Context(), []string{"configmap/a"}, Streams{Out: io.Discard, Err: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	mapping := &meta.RESTMapping{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}}
	_, err = w.write(mapping, &metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "a"}, func(*meta.RESTMapping, metav1.Object) (protection.Protection, error) {
		return protection.New(string(protection.Always), ""), nil
	})
	if asked != 1 || err == nil || !strings.Contains(err.Error(), "not now") {
		t.Errorf("%d requests: %v", asked, err)
	}
}
