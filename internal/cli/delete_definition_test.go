package cli

import (
	"bytes"
	"errors"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/testing/wireserver"
)

// definedServer is a server with a CustomResourceDefinition, an instance of it and a ConfigMap. The first DELETE ends its service of
// the instances: it answers 404 about their paths.
type definedServer struct {
	*wireserver.Server

	effect func(s *wireserver.Server) // of the first DELETE
	page   bool                       // the answers about the definition are those of a load balancer then
	isAway bool
}

const widgetsDefinition = "widgets.example.com"

func newDefinedServer() *definedServer {
	s := &definedServer{Server: wireserver.New(
		wireserver.Resource{Group: "apiextensions.k8s.io", Name: "customresourcedefinitions", Kind: "CustomResourceDefinition", Cluster: true},
		wireserver.Resource{Group: "example.com", Name: "widgets", Kind: "Widget"},
		wireserver.Resource{Name: "configmaps", Kind: "ConfigMap"},
	)}
	s.Put("namespaces", metav1.ObjectMeta{Name: "shop", UID: "shop"})
	s.Put("customresourcedefinitions", metav1.ObjectMeta{Name: widgetsDefinition, UID: "definition"})
	s.Put("widgets", metav1.ObjectMeta{Namespace: "shop", Name: "w", UID: "w"})
	s.Put("configmaps", metav1.ObjectMeta{Namespace: "shop", Name: "c", UID: "c"})
	return s
}

// ServeHTTP implements http.Handler.
func (s *definedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	isDefinition := strings.Contains(r.URL.Path, "/customresourcedefinitions/")
	if s.isAway && (strings.HasPrefix(r.URL.Path, "/apis/example.com/") || s.page && isDefinition) {
		http.NotFound(w, r)
		return
	}
	s.Server.ServeHTTP(w, r)
	if r.Method == http.MethodDelete && !s.isAway {
		s.isAway = true
		s.effect(s.Server)
	}
}

// The DELETE of a definition removes its instances, and the server does not serve them any more: these count as gone, and the
// deletion goes on. Without the end of the definition, a 404 about the path shows nothing.
func TestInstancesGoWithTheirDefinition(t *testing.T) {
	const definition, widget, other = "customresourcedefinitions/" + widgetsDefinition, "widgets/w", "configmaps/c"
	remove := func(s *wireserver.Server) {
		s.Remove("customresourcedefinitions", "definition")
		s.Remove("widgets", "w")
	}
	put := func(meta metav1.ObjectMeta) func(*wireserver.Server) {
		return func(s *wireserver.Server) {
			remove(s)
			meta.Name = widgetsDefinition
			s.Put("customresourcedefinitions", meta)
		}
	}
	now := metav1.NewTime(time.Unix(1, 0))
	for name, test := range map[string]struct {
		targets []string
		effect  func(*wireserver.Server)
		page    bool
		isGone  bool
	}{
		"gone":                      {[]string{definition, widget, other}, remove, false, true},
		"replaced":                  {[]string{definition, widget, other}, put(metav1.ObjectMeta{UID: "new"}), false, true},
		"being deleted":             {[]string{definition, widget, other}, put(metav1.ObjectMeta{UID: "definition", DeletionTimestamp: &now}), false, false},
		"a load balancer answers":   {[]string{definition, widget, other}, remove, true, false},
		"not a part of the preview": {[]string{other, widget}, remove, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newDefinedServer()
			s.effect, s.page = test.effect, test.page
			f := backedUp(atHome(t), s)
			f.backup.file, *f.cluster.kube.Namespace = "", "shop"
			var out, errs bytes.Buffer
			streams := Streams{Out: &out, Err: &errs}
			confirmed, err := f.predict(t.Context(), test.targets, streams)
			if err != nil {
				t.Fatal(err)
			}
			_, err = deletePreviewed(t.Context(), &f, confirmed.report, test.targets, streams)
			if isSaid := strings.Contains(out.String(), "widgets.example.com/w is gone already"); isSaid != test.isGone || (err == nil) != test.isGone || err != nil && !errors.Is(err, errUnanswered) {
				t.Errorf("%v\n%s%s", err, out.String(), errs.String())
			}
			isLast := path.Dir(test.targets[len(test.targets)-1]) == "configmaps"
			if isThere := slices.Contains(s.UIDs("configmaps"), types.UID("c")); isLast && isThere == test.isGone {
				t.Errorf("the last target exists: %t", isThere)
			}
		})
	}
}
