// Package restriction limits the control plane's own components and nodes further than RBAC can, as
// NodeRestriction does in Kubernetes. RBAC can allow the collector to patch every object, but cannot limit
// its patches to owner references. With restrictions, a stolen credential of a component is worth little
// more than the component.
//
// There are two halves. WithRestrictions checks a request before it is handled: a restricted user reads
// metadata only, uses only its own subresources, selects by no field but metadata, and sends patches of one
// form. It also refuses requests whose failure would disclose contents: a patch that succeeds only if a
// guess is right is as good as a read. Admission checks how a write changes the object.
// Reviews decides about the attributes of a request, for access reviews.
//
// The rules of each user are a Restriction; within it, the user's roles decide (package bootstrappolicy).
//
// Nodes in other processes, users system:node:NAME, are restricted, too: each to its Node, its Lease, and
// the pods that are bound to it (nodes.go).
package restriction

import (
	"context"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
)

// Restriction is the set of requests to which a user is restricted.
type Restriction struct {
	// Whole are the resources whose objects the user may read in full.
	Whole []schema.GroupResource
	// Subresources lists the subresources that the user may access, as "namespaces/status".
	Subresources []string
	// Paths are the paths besides resources, discovery and health that the user may read.
	Paths []string
	// Patches allows the user to patch in the single form that checkPatch allows.
	Patches bool
	// AnyPatch lists resources that the user reads in full and may patch in any form, as "pods/status":
	// admission checks these patches.
	AnyPatch []string
	// StatesReason means that the user gives a reason for each deletion, for the audit log.
	StatesReason bool
	// authorize returns an error if a request for a resource is refused; if set, it replaces all of the above.
	authorize func(context.Context, authorizer.Attributes) error
	// checkWrite returns an error if admission refuses a write.
	checkWrite func(context.Context, admission.Attributes) error
}

// Restrictions are the restrictions of all restricted users. They do not change.
type Restrictions struct {
	components map[string]Restriction // by user
	pods       Pods
}

// New returns the restrictions of the control plane's components and of nodes.
func New(namespaces Namespaces, pods Pods) *Restrictions {
	return &Restrictions{componentRestrictions(namespaces), pods}
}

// of returns the restriction of a user; false for an unrestricted one.
func (r *Restrictions) of(u user.Info) (Restriction, bool) {
	if restriction, ok := r.components[u.GetName()]; ok {
		return restriction, true
	}
	return nodeRestriction(u, r.pods)
}

func componentRestrictions(namespaces Namespaces) map[string]Restriction {
	return map[string]Restriction{
		bootstrappolicy.Collector: {
			Paths:   []string{bootstrappolicy.NewestPath},                                               // for the barrier (R15), and so are
			Whole:   []schema.GroupResource{{Group: "apiregistration.k8s.io", Resource: "apiservices"}}, // the outages of groups
			Patches: true, StatesReason: true, checkWrite: checkCollectorWrite,
		},
		bootstrappolicy.NamespaceController: {
			Whole:        []schema.GroupResource{{Resource: "namespaces"}},
			Subresources: []string{"namespaces/status", "namespaces/finalize"},
			checkWrite:   namespaceController{namespaces}.checkWrite,
		},
		bootstrappolicy.ProtectionController: {
			Whole: []schema.GroupResource{
				{Resource: "pods"},
				{Resource: "persistentvolumeclaims"},
				{Resource: "persistentvolumes"},
				{Group: storagev1.GroupName, Resource: "volumeattributesclasses"},
			},
			Patches: true, checkWrite: checkProtectionWrite,
		},
		bootstrappolicy.ResourceQuotaController: {
			Whole:        []schema.GroupResource{{Resource: "resourcequotas"}},
			Subresources: []string{"resourcequotas/status"},
			checkWrite:   checkQuotaWrite,
		},
		bootstrappolicy.StorageVersionMigrator: {
			Whole: []schema.GroupResource{
				{Group: storagemigrationv1.GroupName, Resource: "storageversionmigrations"},
				{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
			},
			Subresources: []string{"storageversionmigrations/status", "customresourcedefinitions/status"},
			AnyPatch:     []string{"customresourcedefinitions/status"},
			Patches:      true, checkWrite: checkMigratorWrite,
		},
		bootstrappolicy.LeaderElection: {
			Whole:      []schema.GroupResource{{Resource: "namespaces"}, {Group: coordinationv1.GroupName, Resource: "leases"}},
			checkWrite: checkLeaderElectionWrite,
		},
		bootstrappolicy.NodeAgent: {
			Whole:        []schema.GroupResource{{Resource: "nodes"}, {Resource: "pods"}, {Resource: "events"}, {Group: coordinationv1.GroupName, Resource: "leases"}},
			Subresources: []string{"nodes/status", "pods/status"},
			AnyPatch:     []string{"nodes/status", "pods/status", "events"},
			checkWrite:   nodeWrites{}.check,
		},
		bootstrappolicy.Scheduler: {
			Whole:        []schema.GroupResource{{Resource: "nodes"}, {Resource: "pods"}, {Resource: "events"}},
			Subresources: []string{"pods/binding", "pods/status"},
			AnyPatch:     []string{"pods/status", "events"},
			checkWrite:   checkSchedulerWrite,
		},
	}
}

func (allowed Restriction) readsWhole(resource schema.GroupResource) bool {
	return slices.Contains(allowed.Whole, resource)
}
