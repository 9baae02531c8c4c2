// Package kinds is the table of the built-in resources: one row (Kind) per
// resource, from which everything else about it follows.
//
//	row ──▶ Schemes     what a request decodes into, with defaults and field labels
//	    ──▶ Storages    a registry per resource and subresource, with its strategies
//	    ──▶ Groups      API groups as the server installs them; discovery comes from there
//	    ──▶ tables      the columns of kubectl get
//	    ──▶ deletion    the kind's part in the delete flow (deletion.Strategy)
//
// To add a kind is to add a row to the file of its API group, and behaviour where
// it has some: typed functions that default, complete, validate and print. A kind
// without behaviour is a row of a dozen lines.
//
// Life of a write. The codec decodes the body into the v1 type and the scheme runs
// the row's defaults (schemes.go). Where objects have values that are theirs alone,
// such as addresses, REST finds some that are free (allocation.go); what one kind has
// to know of another it reads from that one's registry (directory.go). The registry of
// the library calls the strategy
// (strategy.go): on create it clears the status, counts generation 1 and asks the
// row to complete and to validate the object; on update it keeps what this endpoint
// must not change (status on the main endpoint; on /status everything that deletion
// and controllers decide by) and counts a generation if what the user desires has
// changed. Metadata rules (finalizers, owner references, immutability while being
// deleted, R19 and AS-16) are apimachinery's; the registry applies them to every kind.
//
// Life of a deletion. REST (delete.go) replaces the library's own Delete, whose
// checks are not in the transaction that removes the object. It hands the deletion,
// with the kind's strategy, to a Deleter, and answers as clients expect (R20).
// A collection is deleted object by object along the same path (collection.go).
//
// There are no internal types: the v1 types of k8s.io/api are what is stored, what
// is served and what this code works on, also where the library asks for the
// internal version (schemes.go).
//
// What is not here: kinds made by CustomResourceDefinitions (their own library),
// admission, authorization, and
// everything that runs: controllers, scheduler, node agent.
package registry
