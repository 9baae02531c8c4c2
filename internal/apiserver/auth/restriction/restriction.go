// Package confine keeps the control plane's own users to what they are for. RBAC can say
// that the collector may patch everything; it cannot say that it may patch nothing but owner
// references. So a stolen credential of a component is worth little more than the component.
//
// It has two halves. Requests looks at a request before it is handled: a confined user
// reads metadata only, asks for no subresource that is not its own, selects by no field
// that is not metadata, and sends patches of one form. What would be a question about
// contents is refused with them: a patch that succeeds only if a guess is right tells as
// much as a read. Admission looks at what a write does to the object.
//
// The rules of each user are in an Envelope. All else that these users may do is up to
// their roles (package rbac).
//
// Nodes outside of the control plane's process, users system:node:NAME, are confined too:
// each to its Node, its Lease, and the pods that are bound to it (nodes.go).
package restriction

import (
	"context"
	"net/http"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/rbac"
)

// Envelope is what one user is confined to.
type Envelope struct {
	// Full are the resources whose objects the user may read as a whole.
	Full []schema.GroupResource
	// Subresources are those that the user may use, as "namespaces/status".
	Subresources []string
	// Patches tells that the user may patch, in the one form that checkPatch allows.
	Patches bool
	// Reports are what the user may patch in any form, as "pods/status", of resources that it
	// reads whole: what it writes there is looked at when it is admitted.
	Reports []string
	// Explains tells that the user says why it deletes, for the audit log.
	Explains bool
	// ask tells what is wrong with a request, in place of all the above.
	ask func(*http.Request, *genericrequest.RequestInfo) error
	// write tells what is wrong with a write; nil if nothing is.
	write func(context.Context, admission.Attributes) error
}

// Namespaces tells whether a namespace is being deleted.
type Namespaces interface {
	Terminating(ctx context.Context, name string) (bool, error)
}

// Users are the confined users. They do not change.
type Users struct {
	named map[string]Envelope
	pods  Pods
}

// NewUsers are the users of the control plane's own parts, and nodes.
func NewUsers(namespaces Namespaces, pods Pods) *Users {
	return &Users{components(namespaces), pods}
}

// envelope finds what a user is confined to; false for one who is not.
func (c *Users) envelope(u user.Info) (Envelope, bool) {
	if e, ok := c.named[u.GetName()]; ok {
		return e, true
	}
	return nodeEnvelope(u, c.pods)
}

// components are the confined users that are parts of the control plane.
func components(namespaces Namespaces) map[string]Envelope {
	return map[string]Envelope{
		rbac.Collector: {Patches: true, Explains: true, write: collectorWrites},
		rbac.NamespaceController: {
			Full:         []schema.GroupResource{{Resource: "namespaces"}},
			Subresources: []string{"namespaces/status", "namespaces/finalize"},
			write:        sweeper{namespaces}.writes,
		},
		rbac.ProtectionController: {
			Full:    []schema.GroupResource{{Resource: "pods"}, {Resource: "persistentvolumeclaims"}, {Resource: "persistentvolumes"}},
			Patches: true, write: protectorWrites,
		},
		rbac.Candidate: {
			Full:  []schema.GroupResource{{Resource: "namespaces"}, {Group: coordinationv1.GroupName, Resource: "leases"}},
			write: candidateWrites,
		},
		rbac.NodeAgent: {
			Full:         []schema.GroupResource{{Resource: "nodes"}, {Resource: "pods"}, {Group: coordinationv1.GroupName, Resource: "leases"}},
			Subresources: []string{"nodes/status", "pods/status"},
			Reports:      []string{"leases", "nodes/status", "pods/status"},
			write:        nodeWrites{}.check,
		},
		rbac.Scheduler: {
			Full:         []schema.GroupResource{{Resource: "nodes"}, {Resource: "pods"}, {Resource: "events"}},
			Subresources: []string{"pods/binding", "pods/status"},
			Reports:      []string{"pods/status"},
			write:        schedulerWrites,
		},
	}
}

func (e Envelope) readsWhole(resource schema.GroupResource) bool {
	return slices.Contains(e.Full, resource)
}
