// Package protected enforces the protection of objects (R28), beside the API server, which refuses their deletion
// itself; package protection decides.
//
//   - outlived.go checks whether the objects that a protected object outlives still exist: named objects with one GET of
//     metadata each, and objects that carry a finalizer through Lookup.Carried. A user learns nothing about objects that
//     the user may not read: the right is checked first, and without it nothing is looked up (Remaining, Check). The
//     check fails closed: an object that cannot be checked counts as existing, and the result has the reason. Only a 404
//     for the object itself proves its absence. A kind that is not served proves nothing (R3).
//   - users.go looks up the objects that use a protected object, anew for each deletion.
//   - surveys.go lets the users of a server take turns in the longest of these look-ups.
//   - webhook.go is the validating webhook for servers other than ours, and configuration.go its configuration there.
//   - parking.go keeps clients from requesting the deletion of a protected object again and again.
package protected

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// all stands for all groups, or all resources, in a right.
const all = "*"

// May returns nil if a user has a right, and otherwise the reason.
type May func(context.Context, authorizationv1.ResourceAttributes) error

// Lookup looks up the objects because of which a protected object stays: it outlives them, or they use it. It is safe for
// concurrent use.
type Lookup struct {
	Mapper    meta.RESTMapper
	Metadata  metadata.Interface
	Objects   dynamic.Interface
	Discovery discovery.DiscoveryInterface
	// Carried reports whether any object has a finalizer. Nil means unknown.
	Carried func(ctx context.Context, finalizer string) (bool, error)
	// Surveys bounds the lists of all objects of the server, see NewSurveys. Nil sets no bound, for a process that looks up
	// on behalf of its own user. The user of a request is the one of its context, as in an API server.
	Surveys *Surveys
}

// Remaining returns the objects because of which an object stays that is protected as p: the outlived objects that still exist,
// could not be checked, or may not be read by the deleter, or the objects that use it; but not many more than a refusal
// names. A namespaced entry without a namespace is looked up in the namespace of the protected object. A nil may grants all
// rights.
func (l Lookup) Remaining(ctx context.Context, may May, of inuse.Object, p protection.Protection) []protection.Remaining {
	if p.Mode == protection.Unused {
		return (&users{Lookup: l, of: of, fields: inuse.ReadFields(), may: may}).look(ctx)
	}
	var remaining []protection.Remaining
	for _, o := range p.Outlives {
		if one, there := l.find(ctx, may, l.entry(of.Namespace, o)); there {
			remaining = append(remaining, one)
		}
		if len(remaining) > protection.MaxNamed {
			break
		}
	}
	return remaining
}

// Check returns an error that names the first entry that a writer may not read, and the missing right. It does
// not look up objects.
func (l Lookup) Check(ctx context.Context, may May, namespace string, added []protection.Outlived) error {
	for _, o := range added {
		right := l.entry(namespace, o).right()
		if err := may(ctx, right); err != nil {
			return fmt.Errorf("its annotation %s names %s, and who adds that needs the rule {apiGroups: [%q], resources: [%q], verbs: [%q]} %s: %w",
				protection.Annotation, o, right.Group, right.Resource, right.Verb, scope(right), err)
		}
	}
	return nil
}

func scope(right authorizationv1.ResourceAttributes) string {
	if right.Namespace == "" {
		return "in a ClusterRole that is bound in all namespaces"
	}
	return fmt.Sprintf("in namespace %q", right.Namespace)
}

// entry is one of the others, resolved.
type entry struct {
	protection.Outlived

	resource   schema.GroupVersionResource
	namespaced bool
	namespace  string // of a namespaced one
	err        error  // why the resource is unknown
}

// entry resolves one of the others of an object in a namespace.
func (l Lookup) entry(namespace string, o protection.Outlived) entry {
	e := entry{Outlived: o}
	if o.Finalizer != "" {
		return e
	}
	mapping, err := l.mapping(o)
	if err != nil {
		e.err = err
		return e
	}
	e.resource, e.namespaced = mapping.Resource, mapping.Scope.Name() == meta.RESTScopeNameNamespace
	if e.namespaced {
		if e.namespace = o.Namespace; e.namespace == "" {
			e.namespace = namespace
		}
	}
	return e
}

// right returns the right to read whether the entry exists. If its kind is not served, or not yet, the resource
// is unknown: the right must cover all resources of the group.
func (e entry) right() authorizationv1.ResourceAttributes {
	switch {
	case e.Finalizer != "":
		return authorizationv1.ResourceAttributes{Verb: "list", Group: all, Version: all, Resource: all}
	case e.err != nil:
		return authorizationv1.ResourceAttributes{Verb: "get", Group: e.GroupVersionKind().Group, Version: all, Resource: all}
	}
	right := authorizationv1.ResourceAttributes{
		Verb: "get", Group: e.resource.Group, Version: e.resource.Version, Resource: e.resource.Resource, Namespace: e.namespace, Name: e.Name,
	}
	if e.resource.Group == "" && e.resource.Resource == "namespaces" {
		right.Namespace = e.Name // as the API server asks for the right to get a namespace
	}
	return right
}

// find reports whether an entry exists, or counts as existing.
func (l Lookup) find(ctx context.Context, may May, e entry) (protection.Remaining, bool) {
	if may != nil && may(ctx, e.right()) != nil {
		return protection.Remaining{Outlived: e.Outlived, Unread: true}, true
	}
	there, unknown := l.lookUp(ctx, e)
	return protection.Remaining{Outlived: e.Outlived, Unknown: unknown}, there || unknown != ""
}

func (l Lookup) lookUp(ctx context.Context, e entry) (there bool, unknown string) {
	switch {
	case e.Finalizer != "":
		return l.findFinalizer(ctx, e.Finalizer)
	case meta.IsNoMatchError(e.err):
		return false, "the kind is not served"
	case e.err != nil:
		return false, e.err.Error()
	case !ownership.IsName(e.Name) || !ownership.IsName(e.namespace):
		return false, "no object can have this name"
	}
	objects := metadata.ResourceInterface(l.Metadata.Resource(e.resource))
	if e.namespaced {
		objects = l.Metadata.Resource(e.resource).Namespace(e.namespace)
	}
	_, err := objects.Get(ctx, e.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		return true, ""
	case refusal.IsGone(err, e.Name):
		return false, ""
	default:
		return false, err.Error()
	}
}

// mapping finds the resource. The version is a hint: any served one of the kind will do (R1).
func (l Lookup) mapping(o protection.Outlived) (*meta.RESTMapping, error) {
	kind := o.GroupVersionKind()
	mapping, err := l.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return l.Mapper.RESTMapping(kind.GroupKind())
	}
	return mapping, err
}

func (l Lookup) findFinalizer(ctx context.Context, finalizer string) (there bool, unknown string) {
	if l.Carried == nil {
		return false, "this process does not know all objects"
	}
	there, err := l.Carried(ctx, finalizer)
	if err != nil {
		return false, err.Error()
	}
	return there, ""
}
