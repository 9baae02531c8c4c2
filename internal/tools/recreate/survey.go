// Package recreate makes deleted objects again, as package undo plans it.
//
// The main flow: Survey asks what the server serves and what is there under the names that matter
// (survey.go); the plan is made of that; Run creates wave after wave, several objects at a time (run.go),
// and writes what takes a second write (links.go). Nothing that exists is deleted or replaced.
package recreate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/tools/undo"
)

const (
	// fewGets is the number of names of a kind in a namespace that are looked up one by one. If there are
	// more, all are listed.
	fewGets = 20
	// pageSize is that of the lists.
	pageSize = 2000
	// parallel is how many requests are sent at a time.
	parallel = 32
)

// Server is where objects are made again.
type Server struct {
	discovery discovery.DiscoveryInterface
	dynamic   dynamic.Interface
	metadata  metadata.Interface
	journal   *Journal
}

// NewServer returns the server of a configuration, whose limits on the rate of requests do not apply: somebody
// waits for the result, and the server has limits of its own. The journal says what was made again before; it may be nil.
func NewServer(config *rest.Config, journal *Journal) (*Server, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.WarningHandlerWithContext = rest.NoWarnings{} // the user has seen them when the objects were made
	config.UserAgent = "coppice-undo"
	s := Server{journal: journal}
	var errs [3]error
	s.discovery, errs[0] = discovery.NewDiscoveryClientForConfig(config)
	s.dynamic, errs[1] = dynamic.NewForConfig(config)
	s.metadata, errs[2] = metadata.NewForConfig(config)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &s, nil
}

// Dynamic returns the client for whole objects.
func (s *Server) Dynamic() dynamic.Interface { return s.dynamic }

// Kinds asks the server what it serves. What cannot be told, because a group does not answer, is left out.
func (s *Server) Kinds(ctx context.Context) (map[schema.GroupKind]undo.Kind, error) {
	_, lists, err := s.discovery.ServerGroupsAndResources()
	if lists == nil && err != nil {
		return nil, fmt.Errorf("ask the server what it serves: %w", err)
	}
	kinds := map[schema.GroupKind]undo.Kind{}
	status := map[schema.GroupVersionResource]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			resource, subresource, isSub := strings.Cut(r.Name, "/")
			kind := schema.GroupKind{Group: gv.Group, Kind: r.Kind}
			_, known := kinds[kind]
			switch {
			case isSub && subresource == "status":
				status[gv.WithResource(resource)] = true
			case !isSub && !known: // the first version is the preferred one
				kinds[kind] = undo.Kind{Resource: gv.WithResource(r.Name), Namespaced: r.Namespaced}
			}
		}
	}
	for kind, k := range kinds {
		k.Status = status[k.Resource]
		kinds[kind] = k
	}
	return kinds, ctx.Err()
}

// Survey finds out what has to be known to make objects again.
func (s *Server) Survey(ctx context.Context, kept []undo.Kept) (undo.Cluster, error) {
	kinds, err := s.Kinds(ctx)
	if err != nil {
		return undo.Cluster{}, err
	}
	survey := &survey{server: s, found: undo.Cluster{Kinds: kinds, Existing: map[undo.Place]undo.Existing{}}}
	return survey.found, survey.look(ctx, undo.Places(kept, kinds))
}

type survey struct {
	server *Server

	mu    sync.Mutex
	found undo.Cluster // Existing is guarded by mu
}

// look looks up places.
func (s *survey) look(ctx context.Context, places []undo.Place) error {
	type scope struct {
		kind      schema.GroupKind
		namespace string
	}
	scopes := map[scope]map[string]undo.Place{}
	for _, p := range places {
		in := scope{p.Kind, p.Namespace}
		if scopes[in] == nil {
			scopes[in] = map[string]undo.Place{}
		}
		scopes[in][p.Name] = p
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for in, names := range scopes {
		kind, served := s.found.Kinds[in.kind]
		if !served {
			continue // nothing can be there
		}
		objects := s.server.metadata.Resource(kind.Resource).Namespace(in.namespace)
		if len(names) > fewGets {
			group.Go(func() error { return s.list(ctx, objects, names) })
			continue
		}
		for _, p := range names {
			group.Go(func() error { return s.get(ctx, objects, p) })
		}
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("find out what is there: %w", err)
	}
	return nil
}

func (s *survey) get(ctx context.Context, objects metadata.ResourceInterface, p undo.Place) error {
	o, err := objects.Get(ctx, p.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // what may not be read is told when it is made
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%s: %w", p, err)
	}
	s.add(p, o)
	return nil
}

func (s *survey) list(ctx context.Context, objects metadata.ResourceInterface, names map[string]undo.Place) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := objects.List(ctx, options)
		switch {
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
			return ctx.Err()
		case err != nil:
			return err
		}
		for n := range page.Items {
			if p, wanted := names[page.Items[n].Name]; wanted {
				s.add(p, &page.Items[n])
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}

func (s *survey) add(p undo.Place, o metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found.Existing[p] = s.server.existing(o)
}

// existing says what is at a place. Where it comes from is not what its annotation says, which anybody may have written.
func (s *Server) existing(o metav1.Object) undo.Existing {
	return undo.Existing{
		UID: o.GetUID(), UndoneFrom: s.journal.From(o.GetUID()),
		Terminating: o.GetDeletionTimestamp() != nil, Owners: o.GetOwnerReferences(),
	}
}
