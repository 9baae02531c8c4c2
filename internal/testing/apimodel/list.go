package apimodel

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/rules/apiservice"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// snapshot holds the remaining objects of a list that is read page by page.
type snapshot struct {
	objects  []ownership.Object
	revision int
}

// List implements client.Interface. All pages show the state at the first one.
func (s *Server) List(ctx context.Context, kind ownership.Kind, namespace string, limit int64, after string) (client.Page, error) {
	r := Request{Verb: "list", Ref: client.Ref{Kind: kind, Namespace: namespace}}
	return answered(ctx, s, r, func() (client.Page, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.scopes[kind] == ownership.ScopeUnknown {
			return client.Page{}, apierrors.NewServiceUnavailable(kind.String() + " is not served")
		}
		list := s.lists[after]
		switch {
		case after == "":
			list = s.snapshotLocked(kind, namespace)
		case list == nil:
			return client.Page{}, apierrors.NewResourceExpired("the list is too old to be continued")
		}
		return s.pageLocked(list, int(limit)), nil
	})
}

func (s *Server) snapshotLocked(kind ownership.Kind, namespace string) *snapshot {
	list := &snapshot{revision: s.revision}
	for ref, object := range s.objects {
		if ref.Kind == kind && (namespace == "" || ref.Namespace == namespace) {
			list.objects = append(list.objects, clone(object.Object))
		}
	}
	slices.SortFunc(list.objects, func(a, b ownership.Object) int {
		return strings.Compare(client.RefOf(a).String(), client.RefOf(b).String())
	})
	return list
}

func (s *Server) pageLocked(list *snapshot, limit int) client.Page {
	page := client.Page{Objects: list.objects, ResourceVersion: strconv.Itoa(list.revision)}
	if limit > 0 && len(list.objects) > limit {
		page.Objects = list.objects[:limit]
		page.Continue = fmt.Sprint("list-", len(s.lists))
		s.lists[page.Continue] = &snapshot{objects: list.objects[limit:], revision: list.revision}
	}
	return page
}

// Expire makes all lists that are read page by page too old to continue.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for token := range s.lists {
		s.lists[token] = nil
	}
}

// Survey implements client.Interface: all kinds that are served.
func (s *Server) Survey(ctx context.Context) (feed.Watched, error) {
	return answered(ctx, s, Request{Verb: "survey"}, func() (feed.Watched, error) { return s.watched(), nil })
}

func (s *Server) watched() feed.Watched {
	s.mu.Lock()
	watched := feed.Watched{Unknown: slices.Clone(s.unknown)}
	s.mu.Unlock()
	for _, kind := range s.kinds() {
		if s.scope(kind) == ownership.Namespaced {
			watched.Namespaced = append(watched.Namespaced, kind)
		} else {
			watched.Cluster = append(watched.Cluster, kind)
		}
	}
	return watched
}

// Newest implements client.Interface, if TellNewest was called.
func (s *Server) Newest(ctx context.Context, kinds []ownership.Kind) (client.Newest, error) {
	s.mu.Lock()
	silent := s.history == ""
	s.mu.Unlock()
	if silent {
		return client.Newest{}, nil
	}
	return answered(ctx, s, Request{Verb: "newest"}, func() (client.Newest, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		newest := client.Newest{History: s.history, Now: uint64(s.revision), Writes: make(map[ownership.Kind]uint64)}
		for _, kind := range kinds {
			newest.Writes[kind] = uint64(max(s.wrote[kind], 1))
		}
		return newest, nil
	})
}

// TellNewest makes the server answer Newest, with the given name for its history.
func (s *Server) TellNewest(history string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = history
}

// Undiscovered names the group versions that discovery cannot read.
func (s *Server) Undiscovered(groupVersions ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unknown = groupVersions
}

// Outage implements client.Interface, with what Break has said.
func (s *Server) Outage(ctx context.Context, groupVersion string) (apiservice.Outage, error) {
	return answered(ctx, s, Request{Verb: "outage"}, func() (apiservice.Outage, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.outages[groupVersion], nil
	})
}

// Break names the only group version that discovery cannot read, and its outage.
func (s *Server) Break(groupVersion string, outage apiservice.Outage) {
	s.Undiscovered(groupVersion)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outages = map[string]apiservice.Outage{groupVersion: outage}
}

// Created implements client.Interface, with the time that Date has set.
func (s *Server) Created(ctx context.Context, observed ownership.Object) (time.Time, error) {
	ref := client.RefOf(observed)
	return answered(ctx, s, Request{Verb: "created", Ref: ref}, func() (time.Time, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.created[ref], nil
	})
}

// Date sets when an object was created.
func (s *Server) Date(ref client.Ref, created time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.created == nil {
		s.created = map[client.Ref]time.Time{}
	}
	s.created[ref] = created
}

// Reached implements client.Interface.
func (s *Server) Reached(kind ownership.Kind) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reached[kind] == 0 {
		return ""
	}
	return strconv.Itoa(s.reached[kind])
}
