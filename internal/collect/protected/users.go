package protected

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// page bounds the objects of one request.
const page = 500

// users looks up the objects that use a protected object (mode Unused): instances of a CustomResourceDefinition, contents of
// a namespace, objects that name it in a field, and objects that it serves (serving.go).
//
// The process looks with its own rights: otherwise, users without the right to list all volumes could never delete a Secret.
// The rights of the user decide only which of them the refusal names.
type users struct {
	Lookup

	of     inuse.Object
	fields *inuse.Fields
	may    May
	found  []protection.Remaining
	seen   map[types.UID]bool // the found ones: some are served in two groups
}

// look looks up everything that may use the object, until there are more than a refusal names.
func (u *users) look(ctx context.Context) []protection.Remaining {
	u.seen = map[types.UID]bool{}
	switch kind := u.of.Kind; {
	case kind == definitionKind():
		u.instances(ctx, u.of.Name)
		return u.found
	case kind == schema.GroupKind{Kind: "Namespace"}:
		u.contents(ctx)
		return u.found
	case kind == apiServiceKind():
		u.servedByAPI(ctx)
	case isWorkload(kind):
		u.servedByWorkload(ctx)
	}
	for _, kind := range u.fields.UserKinds(u.of.Kind) {
		u.referring(ctx, kind)
	}
	return u.found
}

// full reports whether there are more users than a refusal names.
func (u *users) full() bool { return len(u.found) > protection.MaxNamed }

// unknown adds objects of a kind that could not be looked up: they count as users.
func (u *users) unknown(kind schema.GroupVersionKind, err error) {
	o := protection.Outlived{}
	o.APIVersion, o.Kind = kind.ToAPIVersionAndKind()
	u.found = append(u.found, protection.Remaining{Outlived: o, Unknown: err.Error(), Unread: apierrors.IsForbidden(err)})
}

// unlisted is unknown after the error of a list. The answer of a server may name an object that the deleter may not read, so
// only its reason is repeated.
func (u *users) unlisted(kind schema.GroupVersionKind, err error) {
	if answer, isAnswer := err.(apierrors.APIStatus); isAnswer && !apierrors.IsForbidden(err) {
		err = fmt.Errorf("they cannot be listed: %s", cmp.Or(string(answer.Status().Reason), "the server gives no reason"))
	}
	u.unknown(kind, err)
}

// add adds a user, without its name if the deleter may not list such objects.
func (u *users) add(ctx context.Context, mapping *meta.RESTMapping, o metav1.Object, field string) {
	if uid := o.GetUID(); u.seen[uid] {
		return
	} else if uid != "" {
		u.seen[uid] = true
	}
	user := protection.Remaining{Field: field, UID: o.GetUID()}
	user.APIVersion, user.Kind = mapping.GroupVersionKind.ToAPIVersionAndKind()
	user.Namespace, user.Name = o.GetNamespace(), o.GetName()
	right := authorizationv1.ResourceAttributes{
		Verb: "list", Group: mapping.Resource.Group, Version: mapping.Resource.Version, Resource: mapping.Resource.Resource, Namespace: user.Namespace,
	}
	if u.may != nil && u.may(ctx, right) != nil {
		user = protection.Remaining{Outlived: protection.Outlived{APIVersion: user.APIVersion, Kind: user.Kind}, Unread: true}
		if slices.Contains(u.found, user) {
			return
		}
	}
	u.found = append(u.found, user)
}

// referring looks up the objects of a kind that name the object in a field.
func (u *users) referring(ctx context.Context, kind schema.GroupKind) {
	u.all(ctx, kind, u.of.Namespace, func(mapping *meta.RESTMapping, o *unstructured.Unstructured) {
		if field := u.fieldOf(kind, o); field != "" && !u.full() {
			u.add(ctx, mapping, o, field)
		}
	})
}

// all calls visit for each object of a kind, until enough users are found: for a kind with namespaces, in the one that is
// given. A kind that is not served has none.
func (u *users) all(ctx context.Context, kind schema.GroupKind, namespace string, visit func(*meta.RESTMapping, *unstructured.Unstructured)) {
	mapping, err := u.Mapper.RESTMapping(kind)
	switch {
	case meta.IsNoMatchError(err):
		return
	case err != nil:
		u.unknown(kind.WithVersion(""), err)
		return
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		namespace = "" // an object without a namespace may name objects of any
	}
	objects := u.Objects.Resource(mapping.Resource).Namespace(namespace)
	for options := (metav1.ListOptions{Limit: page}); !u.full(); {
		list, err := objects.List(ctx, options)
		if err != nil {
			u.unlisted(mapping.GroupVersionKind, err)
			return
		}
		for i := range list.Items {
			visit(mapping, &list.Items[i])
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return
		}
	}
}

// fieldOf returns the first field by which another object needs the object; empty if none does.
func (u *users) fieldOf(kind schema.GroupKind, o *unstructured.Unstructured) string {
	if (inuse.Object{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}) == u.of {
		return ""
	}
	for _, r := range u.fields.References(kind, o.GetNamespace(), o.Object) {
		if r.Names(u.of) {
			return r.Field
		}
	}
	return ""
}

// instances looks up the instances of a CustomResourceDefinition.
func (u *users) instances(ctx context.Context, definition string) {
	resource := schema.ParseGroupResource(definition)
	kind, err := u.Mapper.KindFor(resource.WithVersion(""))
	if err != nil {
		u.unknown(schema.GroupVersionKind{Group: resource.Group, Kind: resource.Resource}, fmt.Errorf("its kind is not served: %w", err))
		return
	}
	mapping, err := u.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		u.unknown(kind, err)
		return
	}
	_ = u.some(ctx, mapping, "") // the failure is among the users
}

// looks and pause bound the looks for the contents of a namespace while a kind comes or goes: the list of kinds and the kinds
// themselves do not change at one time.
const (
	looks = 10
	pause = 50 * time.Millisecond
)

// contents looks up the objects in a namespace, beside those that controllers put into each one, and Events, which expire.
func (u *users) contents(ctx context.Context) {
	for look := 1; ; look++ {
		u.found, u.seen = nil, map[types.UID]bool{}
		gone := u.contentsOnce(ctx)
		if !gone || look == looks {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-clock.RealClock{}.After(pause):
		}
	}
}

// contentsOnce looks once. It reports whether a kind of the server's list was not there.
func (u *users) contentsOnce(ctx context.Context) (gone bool) {
	lists, err := u.Discovery.ServerPreferredNamespacedResources()
	if err != nil {
		u.unknown(schema.GroupVersionKind{Kind: "any"}, fmt.Errorf("the kinds of the server are not known: %w", err))
		return false
	}
	slices.SortFunc(lists, func(a, b *metav1.APIResourceList) int { return strings.Compare(a.GroupVersion, b.GroupVersion) })
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists) {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			if r.Kind == "Event" || u.full() {
				continue
			}
			err := u.some(ctx, &meta.RESTMapping{Resource: version.WithResource(r.Name), GroupVersionKind: version.WithKind(r.Kind)}, u.of.Name)
			gone = gone || apierrors.IsNotFound(err)
		}
	}
	return gone
}

// some looks up a few objects of a resource, in a namespace or in all. If that fails, they count as users.
func (u *users) some(ctx context.Context, mapping *meta.RESTMapping, namespace string) error {
	list, err := u.Metadata.Resource(mapping.Resource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: protection.MaxNamed + 2})
	if err != nil {
		u.unlisted(mapping.GroupVersionKind, err)
		return err
	}
	for i := range list.Items {
		o := &list.Items[i]
		if namespace == "" || !isInEachNamespace(mapping.GroupVersionKind.GroupKind(), o.Name) {
			u.add(ctx, mapping, o, "")
		}
	}
	return nil
}

// isInEachNamespace reports whether controllers put an object into each namespace.
func isInEachNamespace(kind schema.GroupKind, name string) bool {
	switch kind {
	case schema.GroupKind{Kind: "ConfigMap"}:
		return name == "kube-root-ca.crt"
	case schema.GroupKind{Kind: "ServiceAccount"}:
		return name == "default"
	default:
		return false
	}
}
