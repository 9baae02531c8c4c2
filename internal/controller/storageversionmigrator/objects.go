package storageversionmigrator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	"github.com/coppice-dev/coppice/internal/controller"
)

// pageSize is the number of objects that are listed at a time.
const pageSize = 500

// requiredVerbs are the verbs without which objects of a resource cannot be rewritten.
func requiredVerbs() []string { return []string{"update", "patch", "list"} }

// findResource returns a resource in the preferred version of its group that has it, nil if it is not served, or why it
// cannot be migrated.
func findResource(client discovery.DiscoveryInterface, of metav1.GroupResource) (found *schema.GroupVersionResource, complaint string, err error) {
	versions, err := versionsOf(client, of.Group)
	if err != nil {
		return nil, "", err
	}
	for _, version := range versions {
		list, err := client.ServerResourcesForGroupVersion(version.String())
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == of.Resource })
		if i < 0 {
			continue
		}
		resource := version.WithResource(of.Resource)
		for _, verb := range requiredVerbs() {
			if !slices.Contains(list.APIResources[i].Verbs, verb) {
				return nil, fmt.Sprintf("resource %q does not support discovery operations: %v", resource.String(), requiredVerbs()), nil
			}
		}
		return &resource, "", nil
	}
	return nil, "", nil
}

// versionsOf returns the versions of a group, the preferred one first.
func versionsOf(client discovery.DiscoveryInterface, group string) ([]schema.GroupVersion, error) {
	groups, err := client.ServerGroups()
	if err != nil {
		return nil, err
	}
	var versions []schema.GroupVersion
	for _, g := range groups.Groups {
		if g.Name != group {
			continue
		}
		versions = append(versions, schema.GroupVersion{Group: group, Version: g.PreferredVersion.Version})
		for _, v := range g.Versions {
			if v.Version != g.PreferredVersion.Version {
				versions = append(versions, schema.GroupVersion{Group: group, Version: v.Version})
			}
		}
	}
	return versions, nil
}

// list returns all objects of a resource.
func (c *reconciler) list(ctx context.Context, resource schema.GroupVersionResource) ([]storedObject, error) {
	var all []storedObject
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := c.Metadata.Resource(resource).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", resource, err)
		}
		for i := range page.Items {
			o := &page.Items[i]
			all = append(all, storedObject{o.Namespace, o.Name, o.UID, o.ResourceVersion})
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return all, nil
		}
	}
}

// rewrite makes the server store objects anew. The patches change nothing: the server writes an object all the same if
// it is stored in another form than it would be now. An object that has changed or is gone needs no rewriting. The
// result is the number of objects that are done.
func (c *reconciler) rewrite(ctx context.Context, resource schema.GroupVersionResource, objects []storedObject) (int, error) {
	for i, o := range objects {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.uid, "resourceVersion": o.version}})
		if err != nil {
			return i, fmt.Errorf("encode the patch: %w", err)
		}
		_, err = c.Metadata.Resource(resource).Namespace(o.namespace).Patch(ctx, o.name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: name})
		if err != nil && !controller.IsConflict(err) && !controller.IsNotFound(err) {
			return i, err
		}
	}
	return len(objects), nil
}
