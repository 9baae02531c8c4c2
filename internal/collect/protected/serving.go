package protected

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// Objects that serve others: an APIService is needed by the objects of its group version, and a workload by the objects
// that it serves as a controller, or by way of a Service.

// apiServiceKind, definitionKind and serviceKind are kinds of objects that name the servers of others.
func apiServiceKind() schema.GroupKind {
	return schema.GroupKind{Group: "apiregistration.k8s.io", Kind: "APIService"}
}

func definitionKind() schema.GroupKind {
	return schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
}

func serviceKind() schema.GroupKind { return schema.GroupKind{Kind: "Service"} }

// isWorkload reports whether objects of a kind run the pods of controllers.
func isWorkload(kind schema.GroupKind) bool {
	return kind.Group == "apps" && slices.Contains([]string{"Deployment", "StatefulSet", "DaemonSet"}, kind.Kind)
}

// whole reads the object whose users are looked up; nil if it does not exist, or cannot be read, which counts as a need.
func (u *users) whole(ctx context.Context) *unstructured.Unstructured {
	mapping, err := u.Mapper.RESTMapping(u.of.Kind)
	if err != nil {
		u.unknown(u.of.Kind.WithVersion(""), err)
		return nil
	}
	o, err := u.Objects.Resource(mapping.Resource).Namespace(u.of.Namespace).Get(ctx, u.of.Name, metav1.GetOptions{})
	switch {
	case refusal.IsGone(err, u.of.Name):
		return nil
	case err != nil:
		u.unknown(mapping.GroupVersionKind, err)
		return nil
	}
	return o
}

// servedByAPI looks up the objects that only an APIService makes available. The server itself serves the local ones.
func (u *users) servedByAPI(ctx context.Context) {
	if o := u.whole(ctx); o != nil {
		u.behind(ctx, o)
	}
}

// behind looks up the objects of the group version of an APIService that no other version of the group serves. Objects that
// cannot be deleted are computed, such as metrics, and do not count.
func (u *users) behind(ctx context.Context, apiService *unstructured.Unstructured) {
	if service, _, _ := unstructured.NestedMap(apiService.Object, "spec", "service"); service == nil {
		return
	}
	group, _, _ := unstructured.NestedString(apiService.Object, "spec", "group")
	version, _, _ := unstructured.NestedString(apiService.Object, "spec", "version")
	served := schema.GroupVersion{Group: group, Version: version}
	list, err := u.Discovery.ServerResourcesForGroupVersion(served.String())
	if err != nil {
		u.unknown(served.WithKind("any"), fmt.Errorf("the kinds of the group version are not known: %w", err))
		return
	}
	elsewhere := u.otherVersions(served)
	for _, r := range list.APIResources {
		isListed := !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete")
		if isListed && !elsewhere[r.Name] && !u.full() {
			_ = u.some(ctx, &meta.RESTMapping{Resource: served.WithResource(r.Name), GroupVersionKind: served.WithKind(r.Kind)}, "") // the failure is among the users
		}
	}
}

// otherVersions returns the resources that other versions of a group serve. Versions that do not answer serve none.
func (u *users) otherVersions(of schema.GroupVersion) map[string]bool {
	resources := map[string]bool{}
	groups, err := u.Discovery.ServerGroups()
	if err != nil {
		return resources
	}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			if g.Name != of.Group || v.Version == of.Version {
				continue
			}
			list, err := u.Discovery.ServerResourcesForGroupVersion(v.GroupVersion)
			if err != nil {
				continue
			}
			for _, r := range list.APIResources {
				resources[r.Name] = resources[r.Name] || slices.Contains(r.Verbs, "list")
			}
		}
	}
	return resources
}

// servedByWorkload looks up the objects that a workload serves.
func (u *users) servedByWorkload(ctx context.Context) {
	o := u.whole(ctx)
	if o == nil {
		return
	}
	u.servedByServices(ctx, o)
	u.servedByController(ctx, o)
}

// servedByServices looks up the objects that need a Service which selects the pods of a workload: the instances of a
// CustomResourceDefinition that it converts, and the objects behind an APIService.
func (u *users) servedByServices(ctx context.Context, workload *unstructured.Unstructured) {
	template, _, _ := unstructured.NestedStringMap(workload.Object, "spec", "template", "metadata", "labels")
	services := map[inuse.Object]bool{}
	u.all(ctx, serviceKind(), u.of.Namespace, func(_ *meta.RESTMapping, o *unstructured.Unstructured) {
		selector, _, _ := unstructured.NestedStringMap(o.Object, "spec", "selector")
		if len(selector) > 0 && labels.SelectorFromSet(selector).Matches(labels.Set(template)) {
			services[inuse.Object{Kind: serviceKind(), Namespace: o.GetNamespace(), Name: o.GetName()}] = true
		}
	})
	if len(services) == 0 {
		return
	}
	namesOne := func(kind schema.GroupKind, o *unstructured.Unstructured) bool {
		return slices.ContainsFunc(u.fields.References(kind, "", o.Object), func(r inuse.Reference) bool { return services[r.To] })
	}
	u.all(ctx, definitionKind(), "", func(_ *meta.RESTMapping, o *unstructured.Unstructured) {
		if namesOne(definitionKind(), o) {
			u.instances(ctx, o.GetName())
		}
	})
	u.all(ctx, apiServiceKind(), "", func(_ *meta.RESTMapping, o *unstructured.Unstructured) {
		if namesOne(apiServiceKind(), o) {
			u.behind(ctx, o)
		}
	})
}

// servedByController looks up the objects of all kinds whose fields a field manager with the name of the workload has
// written (inuse.Served). That reads the metadata of all objects, until enough are found.
func (u *users) servedByController(ctx context.Context, workload *unstructured.Unstructured) {
	end, ok := u.Surveys.begin(ctx)
	if !ok {
		u.found = append(u.found, protection.Remaining{Busy: true})
		return
	}
	defer end()
	ctx, cancel := u.Surveys.bound(ctx)
	defer cancel()
	lists, err := u.kinds(ctx)
	if err != nil {
		u.unknown(schema.GroupVersionKind{Kind: "any"}, fmt.Errorf("the kinds of the server are not known: %w", err))
		return
	}
	all := workload.GetLabels()
	isManager := func(manager string) bool {
		return inuse.HasName(u.of.Name, manager, func(key string) string { return all[key] })
	}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists) {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			if r.Kind == "Event" {
				continue
			}
			mapping := &meta.RESTMapping{Resource: version.WithResource(r.Name), GroupVersionKind: version.WithKind(r.Kind)}
			if err := u.writtenBy(ctx, mapping, isManager); errors.Is(err, context.DeadlineExceeded) {
				return // others wait
			}
		}
	}
}

// kinds returns the resources of the server, each in its preferred version.
func (u *users) kinds(ctx context.Context) ([]*metav1.APIResourceList, error) {
	ctx, cancel := context.WithTimeout(ctx, longestPage)
	defer cancel()
	return discovery.ToDiscoveryInterfaceWithContext(u.Discovery).ServerPreferredResourcesWithContext(ctx)
}

// writtenBy looks up the objects of a resource that a field manager serves. A resource that is gone has none. If that fails,
// they count as users.
func (u *users) writtenBy(ctx context.Context, mapping *meta.RESTMapping, isManager func(string) bool) error {
	for options := (metav1.ListOptions{Limit: page}); !u.full(); {
		next, err := u.writtenOnPage(ctx, mapping, options, isManager)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			u.unlisted(mapping.GroupVersionKind, err)
			return err
		case next == "":
			return nil
		}
		options.Continue = next
	}
	return nil
}

// writtenOnPage is writtenBy for one page. It returns the token of the next one.
func (u *users) writtenOnPage(ctx context.Context, mapping *meta.RESTMapping, options metav1.ListOptions, isManager func(string) bool) (next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, longestPage)
	defer cancel()
	list, err := u.Metadata.Resource(mapping.Resource).List(ctx, options)
	switch {
	case err != nil && ctx.Err() != nil:
		return "", fmt.Errorf("the server does not list them in time: %w", ctx.Err())
	case err != nil:
		return "", err
	}
	kind := mapping.GroupVersionKind.GroupKind()
	for i := range list.Items {
		o := &list.Items[i]
		what, served := inuse.Served(kind, o, isManager)
		isItself := (inuse.Object{Kind: kind, Namespace: o.Namespace, Name: o.Name}) == u.of
		if served && !isItself && !u.full() {
			u.add(ctx, mapping, o, what)
		}
	}
	return list.Continue, nil
}
