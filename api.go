package coppice

import (
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// APIPrefix is the prefix of the paths of Controllers.APIHandler.
const APIPrefix = api.Prefix

// MayList reports whether a caller may list a resource in a namespace, or in all namespaces if it is empty.
// Group "*" and resource "*" mean all groups and resources.
type MayList = api.MayList

// Caller is the user who makes a request, with the user's list permissions and a config to reach the API server as
// the user.
type Caller = api.Caller

// Access authenticates a request. Its error wraps ErrUnauthenticated if the caller is not known.
type Access = api.Access

// ErrUnauthenticated is the error of an Access for a caller whose identity is not known.
var ErrUnauthenticated = api.ErrUnauthenticated

// DelegatedAccess returns an Access that asks the API server of config, with the caller's bearer
// token. It uses only the address of config, so the collector needs no rights for it.
func DelegatedAccess(config *rest.Config) Access { return api.Delegated(config) }

// APIHandler returns a handler for questions about deletion, ownership and collection, below APIPrefix:
// owners, dependents, component, preview and explain of objects by name and by UID; deletions, records,
// status; and changes as server-sent events (watch). The path APIPrefix+"/openapi" serves its OpenAPI
// document.
//
// A preview names the admission policies and webhooks that match a DELETE, and does not evaluate their expressions:
// that takes the packages of k8s.io/apiserver, which the commands have.
//
// Callers are authenticated, and only see objects that they may list. Serve the handler over TLS or on a
// private connection: callers send their tokens.
func (c Controllers) APIHandler(access Access) http.Handler {
	return api.Handler(api.Of(c.inside().Controllers, nil, protection.Limits{}), access)
}

// SeenStatus is the part of the Status that a caller may see: the answer of the path APIPrefix+"/status".
type SeenStatus = api.SeenStatus
