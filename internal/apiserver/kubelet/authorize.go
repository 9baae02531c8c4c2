package kubelet

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
)

// createVerb is the permission for any stream. A WebSocket is opened with GET, for which the server has
// authorized "get" only: a user with read access to pods must not be able to run commands in them.
const createVerb = "create"

// authorizeCreate returns an error unless the user of a request may create the subresource.
func authorizeCreate(ctx context.Context, a authorizer.Authorizer) error {
	info, ok := genericrequest.RequestInfoFrom(ctx)
	if !ok {
		return apierrors.NewInternalError(errors.New("no request info in context"))
	}
	if info.Verb == createVerb {
		return nil
	}
	requested, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("error building authorizer attributes: %w", err))
	}
	decision, reason, err := a.Authorize(ctx, creation{requested})
	if err != nil {
		return err
	}
	if decision != authorizer.DecisionAllow {
		return apierrors.NewForbidden(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Name, errors.New(reason))
	}
	return nil
}

// creation presents a request as one with the verb create.
type creation struct{ authorizer.Attributes }

// GetVerb implements authorizer.Attributes.
func (creation) GetVerb() string { return createVerb }
