package recyclebin

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// sight decides which objects a caller may get, for one request.
type sight struct {
	ctx        context.Context //nolint:containedctx // of the request
	who        user.Info
	authorize  authorizer.Authorizer
	living     func(ctx context.Context, namespace string) (types.UID, error)
	answers    map[right]bool
	namespaces map[string]types.UID // that exist
	unread     []string
}

// right is the right to get an object; all objects if name is empty, in all namespaces if namespace is empty.
type right struct{ group, resource, namespace, name string }

// sees reports whether the caller may get the objects of a scope, or the object with a name if name is not empty. A
// right in a namespace does not cover the objects of a former namespace with the same name, which need a right in all
// namespaces.
func (s *sight) sees(of *scope, name string) (bool, error) {
	for _, named := range slices.Compact([]string{"", name}) {
		if allowed, err := s.may(right{of.group, of.resource, "", named}); allowed || err != nil {
			return allowed, err
		}
		if of.namespace == "" {
			continue
		}
		allowed, err := s.may(right{of.group, of.resource, of.namespace, named})
		if err != nil {
			return false, err
		}
		if allowed {
			if allowed, err = s.lives(of); allowed || err != nil {
				return allowed, err
			}
		}
	}
	if what := of.groupResource().String() + ": objects that you may not get are left out"; !slices.Contains(s.unread, what) {
		s.unread = append(s.unread, what)
	}
	return false, nil
}

func (s *sight) may(r right) (bool, error) {
	if allowed, known := s.answers[r]; known {
		return allowed, nil
	}
	decision, _, err := s.authorize.Authorize(s.ctx, authorizer.AttributesRecord{
		User: s.who, Verb: "get", Namespace: r.namespace, Name: r.name, ResourceRequest: true,
		APIGroup: r.group, APIVersion: "*", Resource: r.resource,
	})
	if err != nil && decision != authorizer.DecisionAllow {
		return false, fmt.Errorf("find out what the user may get: %w", err)
	}
	s.answers[r] = decision == authorizer.DecisionAllow
	return s.answers[r], nil
}

// lives reports whether the namespace of a scope still exists, with the same UID.
func (s *sight) lives(of *scope) (bool, error) {
	uid, known := s.namespaces[of.namespace]
	if !known {
		var err error
		if uid, err = s.living(s.ctx, of.namespace); err != nil {
			return false, err
		}
		s.namespaces[of.namespace] = uid
	}
	return uid != "" && uid == of.namespaceUID, nil
}
