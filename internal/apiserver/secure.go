package apiserver

import (
	"context"
	"slices"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/coppice-dev/coppice/internal/apiserver/admissionchain"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/accesscontrol"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/ownerreferences"
	"github.com/coppice-dev/coppice/internal/apiserver/definitions"
	"github.com/coppice-dev/coppice/internal/apiserver/deleteflow"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
	"github.com/coppice-dev/coppice/internal/apiserver/storemetadata"
	"github.com/coppice-dev/coppice/internal/collect/protected"
)

// security has the parts that authorize requests and carry out deletions.
type security struct {
	access   *accesscontrol.AccessControl
	metadata *storemetadata.Source
	flow     *deleteflow.Flow
	// companions are the companions of the server at the time of each call.
	companions companions
	// confirmations are nil if no deletion needs a confirmation.
	confirmations *confirmations
}

// secure sets up authentication, authorization, the delete flow, priority and fairness, and admission.
func secure(ctx context.Context, c completedConfig, f *foundation) (*security, error) {
	access, err := accesscontrol.Apply(f.base, accesscontrol.Config{
		Authority: c.Authority, External: c.External, Client: f.client, Informers: f.informers,
		Registry: f.installed.registry, Now: c.Now,
	})
	if err != nil {
		return nil, err
	}
	stored := storemetadata.New(storemetadata.Config{
		Follower: c.Store.Follower(), Authorizer: f.base.Authorization.Authorizer, Builtin: f.served.IsBuiltin,
	})
	companions := companions(c.Companions)
	outlived := outlived{access: access, lookup: protected.Lookup{
		Mapper: f.mapper, Metadata: f.objects, Objects: f.whole, Discovery: f.client.Discovery(), Carried: companions.hasFinalizer,
		Surveys: protected.NewSurveys(),
	}}
	about := deleteflow.Config{
		Now: c.Now, Resources: builtin.Resources(), Collector: c.Features.Collector,
		Remaining: outlived.left, OnRequest: companions.requested, Stored: stored.At, Protect: c.Protect,
	}
	confirmations := newConfirmations(c, f, stored)
	if confirmations != nil {
		about.Confirmed = confirmations.check
	}
	flow := deleteflow.New(about)
	f.base.BuildHandlerChainFunc = handlerChain(f, access, flow)
	// Requests are queued by priority level and user, so that a flood of requests delays only its own user. Requests
	// whose queue is full are refused with 429. Administrators are exempt.
	f.base.FlowControl = flowcontrol.New(f.informers, f.client.FlowcontrolV1(), f.base.MaxRequestsInFlight+f.base.MaxMutatingRequestsInFlight)
	err = admissionchain.Apply(ctx, f.base, admissionchain.Config{
		Client: f.client, Informers: f.informers, Mapper: f.mapper, Flow: flow,
		Restrictions: access.Restrictions, Outlived: outlived.check, Now: c.Now,
		Served: f.served, OwnerExists: ownerreferences.Lookup{Mapper: f.mapper, Metadata: f.objects}.Exists, Backlog: companions.backlog,
		MergeTypes: f.mergeTypes, Mistakes: definitions.NewChecker(validate.MaxErrors, f.installed.definition), Webhooks: f.webhooks(),
		Features: c.Features, Disabled: slices.Concat(c.DisabledPlugins, admissionchain.Later(c.kubernetes.Minor())), File: c.AdmissionConfig,
	})
	if err != nil {
		return nil, err
	}
	return &security{access: access, metadata: stored, flow: flow, companions: companions, confirmations: confirmations}, nil
}

// unrestricted returns an authorizer that lets restricted users see nothing.
func unrestricted(access *accesscontrol.AccessControl) authorizer.Authorizer {
	return access.Restrictions.Unrestricted(access.Authorizer)
}
