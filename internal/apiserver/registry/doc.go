// Package registry is the framework for the built-in resources: one row (Resource) per resource,
// from which everything else about it is derived.
//
//	row ──▶ Schemes     what a request decodes into, with defaults and field labels
//	    ──▶ Storages    a registry per resource and subresource, with its strategies
//	    ──▶ APIGroups   API groups as the server installs them; discovery comes from there
//	    ──▶ table       the columns of kubectl get
//	    ──▶ deletion    the resource's part in the delete flow (deletion.Strategy)
//
// The rows of an API group are in a package below this one or, if they fit one file, in a file
// of package builtin, which combines all of them. This package knows none of them. Package podspec has the defaults and the
// validation of pod specs, which several groups need; packages validate and table have
// the parts of which rows are composed.
//
// To add a resource, add a row to its API group and, if needed, a Strategy:
// typed functions that default, prepare, validate and so on. A resource without a Strategy
// is a row of a dozen lines.
//
// Life of a write. The codec decodes the body into the v1 type and the scheme runs the
// row's defaults (schemes.go). Values that must be unique, such as addresses, are allocated
// by REST (rest.go, package allocation). What one resource needs to know about another it
// reads from the other's registry (registries.go). Then genericregistry.Store of
// k8s.io/apiserver calls the strategy (reststrategy.go): on create it clears the status,
// sets generation 1 and lets the row complete and validate the object; on update it keeps
// what this endpoint must not change (the status on the main endpoint; on /status
// everything that deletion and controllers decide by) and increments the generation if what
// the user desires has changed. The rules of metadata (finalizers, owner references,
// immutability while being deleted, R19 and AS-16) are apimachinery's; the Store applies
// them to every resource.
//
// Life of a deletion. REST (delete.go) replaces the Store's own Delete, whose checks are
// not in the transaction that removes the object. It passes the deletion, with the
// resource's strategy, to a Deleter, and responds as clients expect (R20). A collection
// is deleted object by object along the same path (collection.go).
//
// There are no internal types: the v1 types of k8s.io/api are stored, served and used by
// this code, even where k8s.io/apiserver asks for the internal version (schemes.go).
//
// Not here: custom resources (k8s.io/apiextensions-apiserver has their registries),
// admission, authorization, and everything that runs: controllers, scheduler, node agent.
package registry
