package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/cascade"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/restore"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

// TestTargetsThatDependOnEachOtherAreDeleted: a collector may delete one target because another one has gone. That is no
// failure, and any other change is one.
func TestTargetsThatDependOnEachOtherAreDeleted(t *testing.T) {
	resource := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	seen := &inventory.Object{Resource: &inventory.Resource{GroupVersionResource: resource}}
	seen.Namespace, seen.Name, seen.UID, seen.ResourceVersion = "shop", "a", "u", "1"
	conflict := apierrors.NewConflict(resource.GroupResource(), "a", errors.New("the version is 2"))
	missing := apierrors.NewNotFound(resource.GroupResource(), "a")
	now := metav1.NewTime(time.Unix(1_800_000_000, 0))
	for name, test := range map[string]struct {
		stored metav1.ObjectMeta
		answer error
		want   string // empty for an error
	}{
		"the same":              {metav1.ObjectMeta{UID: "u"}, nil, "configmaps/a deleted"},
		"gone":                  {metav1.ObjectMeta{}, missing, "configmaps/a is gone already"},
		"gone, and changed":     {metav1.ObjectMeta{}, conflict, "configmaps/a is gone already"},
		"replaced":              {metav1.ObjectMeta{UID: "v"}, missing, "configmaps/a is gone already"},
		"called gone":           {metav1.ObjectMeta{UID: "u"}, missing, ""},
		"denied as missing":     {metav1.ObjectMeta{}, denied(http.StatusNotFound, metav1.StatusReasonNotFound), ""},
		"denied as a conflict":  {metav1.ObjectMeta{UID: "u", DeletionTimestamp: &now}, denied(http.StatusConflict, metav1.StatusReasonConflict), ""},
		"being deleted":         {metav1.ObjectMeta{UID: "u", DeletionTimestamp: &now}, conflict, "configmaps/a is being deleted already"},
		"changed":               {metav1.ObjectMeta{UID: "u"}, conflict, ""},
		"another being deleted": {metav1.ObjectMeta{UID: "v", DeletionTimestamp: &now}, conflict, ""},
		"refused":               {metav1.ObjectMeta{UID: "u", DeletionTimestamp: &now}, apierrors.NewForbidden(resource.GroupResource(), "a", errors.New("no")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			test.stored.Namespace, test.stored.Name = "shop", "a"
			scheme := metadatafake.NewTestScheme()
			if err := metav1.AddMetaToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			stored := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: test.stored}
			client := metadatafake.NewSimpleMetadataClient(scheme)
			if test.stored.UID != "" {
				client = metadatafake.NewSimpleMetadataClient(scheme, stored)
			}
			client.PrependReactor("delete", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.answer })
			line, err := prediction{policy: metav1.DeletePropagationBackground}.deleteSeen(t.Context(), client, seen)
			if line != test.want || (err == nil) != (test.want != "") || test.want == "" && !strings.Contains(err.Error(), "configmaps/a") {
				t.Errorf("%q, %v; want %q", line, err, test.want)
			}
		})
	}
}

// A 404 shows that an object is deleted only if it is about the object: the server may not serve its kind for a moment, and a load
// balancer may answer.
func TestOnlyA404AboutTheObjectShowsThatItIsDeleted(t *testing.T) {
	configMaps := schema.GroupResource{Resource: "configmaps"}
	missing := apierrors.NewNotFound(configMaps, "a")
	path := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "404 page not found"}}
	seen := configMap("a")
	for name, test := range map[string]struct {
		read   error
		isGone bool
	}{
		"about the object": {missing, true},
		"about the path":   {path, false},
		"a page":           {apierrors.NewGenericServerResponse(http.StatusNotFound, "get", configMaps, "a", "<html>", 0, true), false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, answer := range []error{missing, path, &restore.DoubtError{Last: missing, Earlier: errors.New("no answer")}} {
				line, err := lineOf(seen, answer, nil, test.read)
				if test.isGone != (line == "configmaps/a is gone already") || test.isGone == errors.Is(err, errUnanswered) {
					t.Errorf("after %v: %q, %v", answer, line, err)
				}
			}
			scheme := metadatafake.NewTestScheme()
			if err := metav1.AddMetaToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			client := metadatafake.NewSimpleMetadataClient(scheme)
			client.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.read })
			d := &unusedDeletion{flags: &deleteFlags{}, client: client, clock: clock.RealClock{}, target: seen, asked: &preview.Report{}, lost: errUnanswered}
			if _, err := d.settle(t.Context()); (d.deleted != nil) != test.isGone || (err == nil) != test.isGone || (d.lost == nil) != test.isGone {
				t.Errorf("a DELETE in doubt: deleted: %t, %v, %v", d.deleted != nil, err, d.lost)
			}
		})
	}
}

// denied returns the denial of a webhook that chooses the code.
func denied(code int32, reason metav1.StatusReason) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: `admission webhook "keep.example.com" denied the request: no team`,
	}}
}

// A denial ends the wait until nothing needs the object, whatever its code: no other attempt would succeed. A conflict does
// not. Nor does a denial count as a label that is gone, or has changed.
func TestDenialIsNoConflict(t *testing.T) {
	d := &unusedDeletion{target: configMap("a")}
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "a", errors.New("the version is 2"))
	if refused, err := d.refusal(fmt.Errorf("delete configmaps/a: %w", conflict)); refused == "" || err != nil {
		t.Errorf("a conflict: %q, %v", refused, err)
	}
	for _, denial := range []error{denied(http.StatusConflict, metav1.StatusReasonConflict), denied(http.StatusNotFound, metav1.StatusReasonNotFound)} {
		if refused, err := d.refusal(fmt.Errorf("delete configmaps/a: %w", denial)); refused != "" || !errors.Is(err, denial) {
			t.Errorf("%v: %q, %v", denial, refused, err)
		}
		scheme := metadatafake.NewTestScheme()
		if err := metav1.AddMetaToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		client := metadatafake.NewSimpleMetadataClient(scheme, &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "u"},
		})
		writes := 0
		client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			writes++
			return true, nil, denial
		})
		d.client = client
		if err := d.relabel(t.Context(), "", "unused"); !errors.Is(err, denial) || writes != 1 {
			t.Errorf("%v: the label is written %d times, %v", denial, writes, err)
		}
	}
}

// configMap returns a ConfigMap as it was read.
func configMap(name string) *inventory.Object {
	o := &inventory.Object{Resource: &inventory.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}}}
	o.Namespace, o.Name, o.UID, o.ResourceVersion = "shop", name, "u", "1"
	return o
}

// Ctrl-C completes the DELETE under way, which the command reports, and begins no other write.
func TestInterruptedDeletionIsReported(t *testing.T) {
	var requests []string
	interrupt := func() {}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method+" "+r.URL.Path)
		interrupt()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata"}`)
	}))
	t.Cleanup(server.Close)
	client, err := metadata.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	interrupt = cancel
	p := prediction{policy: metav1.DeletePropagationBackground}
	if line, err := p.delete(ctx, client, configMap("a")); err != nil || line != "configmaps/a deleted" {
		t.Errorf("the DELETE under way: %q, %v", line, err)
	}
	if _, err := p.delete(ctx, client, configMap("b")); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "configmaps/b is not deleted") {
		t.Errorf("the next DELETE: %v", err)
	}
	if _, err := confirmSeen(ctx, client, configMap("c"), p, protection.Closure{}); !errors.Is(err, context.Canceled) {
		t.Errorf("the next confirmation: %v", err)
	}
	ctx, interrupt = context.WithCancel(t.Context())
	defer interrupt()
	if _, err := confirmSeen(ctx, client, configMap("d"), p, protection.Closure{}); err == nil || !strings.Contains(err.Error(), "configmaps/d is not deleted: interrupted") {
		t.Errorf("the confirmation under way: %v", err)
	}
	if want := []string{"DELETE /api/v1/namespaces/shop/configmaps/a", "PATCH /api/v1/namespaces/shop/configmaps/d"}; !slices.Equal(requests, want) {
		t.Errorf("requests: %q, want %q", requests, want)
	}
}

// labelServer is a server of coppice up with one ConfigMap.
type labelServer struct {
	isProtected atomic.Bool                         // the ConfigMap has the label
	patched     func(isProtected bool, lose func()) // lose closes the connection without an answer
}

func (s *labelServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/version":
		_, _ = io.WriteString(w, `{"gitVersion": "`+version.Kubernetes()+`"}`)
		return
	case !strings.HasSuffix(r.URL.Path, "/configmaps/a"):
		w.WriteHeader(http.StatusNotFound)
		return
	case r.Method == http.MethodPatch:
		text, _ := io.ReadAll(r.Body)
		s.isProtected.Store(strings.Contains(string(text), `:"unused"`))
		s.patched(s.isProtected.Load(), func() {
			if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = c.Close()
			}
		})
	}
	label := ""
	if s.isProtected.Load() {
		label = "unused"
	}
	_, _ = io.WriteString(w, `{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"uid": "u", "resourceVersion": "1", "labels": {"coppice.dev/protect": "`+label+`"}}}`)
}

// The label that protects an object until it is deleted is removed again, also if Ctrl-C ends the command, or a lost
// connection the write of the label.
func TestInterruptedProtectionIsLifted(t *testing.T) {
	for name, patched := range map[string]func(interrupt, lose func()){
		"Ctrl-C": func(interrupt, _ func()) { interrupt() },
		"lost":   func(_, lose func()) { lose() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			s := &labelServer{}
			s.patched = func(isProtected bool, lose func()) {
				if isProtected {
					patched(interrupt, lose)
				}
			}
			server := httptest.NewUnstartedServer(s)
			server.Config.ErrorLog = log.New(io.Discard, "", 0) // of answers without a connection
			server.Start()
			t.Cleanup(server.Close)
			client, err := metadata.NewForConfig(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			var f deleteFlags
			c := &cobra.Command{}
			f.add(c)
			if err := c.ParseFlags([]string{"--server", server.URL}); err != nil {
				t.Fatal(err)
			}
			d := &unusedDeletion{flags: &f, client: client, target: configMap("a")}
			restore, err := d.protect(ctx)
			if (err == nil) != (name == "Ctrl-C") {
				t.Fatalf("%v", err)
			}
			if err == nil {
				if !s.isProtected.Load() {
					t.Error("the object has no label")
				}
				err = restore()
			} else if strings.Contains(err.Error(), "keeps the label") {
				t.Error(err)
			}
			if s.isProtected.Load() {
				t.Errorf("the object keeps its label: %v", err)
			}
		})
	}
}

// A DELETE without an answer may have deleted the object: no end of the wait says that nothing is deleted.
func TestUnansweredDeletionIsReported(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	for name, lost := range map[string]bool{"nothing is deleted": false, "no answer of the server": true} {
		d := &unusedDeletion{clock: clock.RealClock{}, flags: &deleteFlags{}, target: configMap("a")}
		failed := context.Canceled
		if lost {
			_, failed = d.refusal(fmt.Errorf("delete configmaps/a: %w", answerOf(io.ErrUnexpectedEOF)))
		}
		timedOut := cascade.Report{State: cascade.TimedOut}
		p := &waitPrinter{format: "text", s: Streams{Out: io.Discard, Err: io.Discard}}
		for _, err := range []error{d.undone(ctx, cascade.Report{}, errors.Join(failed, ctx.Err()), p), d.undone(t.Context(), timedOut, nil, p)} {
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%v does not say %q", err, name)
			}
		}
	}
}
