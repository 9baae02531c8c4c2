package reader

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// named returns the objects that decide about members of the selection by a field, which the graph does not have: the pods
// of nodes, the claims of volumes that are being deleted, and the objects in deletion that name a class in deletion. It
// looks at members that were not asked about before.
func (n *neighborhood) named(ctx context.Context, asked map[ownership.UID]bool) ([]ownership.UID, error) {
	var nodes, volumes, classes []ownership.Object
	for uid, o := range n.selection.Members {
		isHeld := func(finalizer string) bool {
			return o.Phase != ownership.Active && slices.Contains(o.Finalizers, finalizer)
		}
		switch {
		case asked[uid]:
			continue
		case o.Kind == inventory.NodeKind():
			nodes = append(nodes, o)
		case o.Kind == ownership.Kind{Kind: "PersistentVolume"} && isHeld(inuse.PVProtection):
			volumes = append(volumes, o)
		case o.Kind == ownership.Kind{Group: "storage.k8s.io", Kind: "VolumeAttributesClass"} && isHeld(inuse.VACProtection):
			classes = append(classes, o)
		default:
			continue
		}
		asked[uid] = true
	}
	uids, err := n.podsOn(ctx, nodes)
	if err != nil {
		return nil, err
	}
	uids = append(uids, n.claimsOf(ctx, volumes)...)
	for _, class := range classes {
		users, _ := classUsers(ctx, n.kubernetes, class.Name) // the answer's facts have the error
		for _, user := range users {
			if user.Deleting {
				uids = append(uids, user.UID)
			}
		}
	}
	return uids, ctx.Err()
}

// podsOn returns the pods of nodes.
func (n *neighborhood) podsOn(ctx context.Context, nodes []ownership.Object) ([]ownership.UID, error) {
	resource := n.selection.Resources[inventory.PodKind()]
	if resource == nil {
		return nil, nil
	}
	var pods []ownership.UID
	for _, node := range nodes {
		on := part{fields: fields.OneTermEqualSelector("spec.nodeName", node.Name).String()}
		if err := n.each(ctx, resource, on, func(meta *metav1.ObjectMeta, _ *inventory.Pod) { pods = append(pods, ownership.UID(meta.UID)) }); err != nil {
			return nil, n.missedAt(ctx, place{resource: resource}, err)
		}
	}
	return pods, nil
}

// claimsOf returns the claims of PersistentVolumes, as far as these can be read: the answer's facts have the errors.
func (n *neighborhood) claimsOf(ctx context.Context, volumes []ownership.Object) []ownership.UID {
	var claims []ownership.UID
	add := func(volume *corev1.PersistentVolume) {
		if volume.Spec.ClaimRef != nil {
			claims = append(claims, ownership.UID(volume.Spec.ClaimRef.UID))
		}
	}
	all := n.kubernetes.CoreV1().PersistentVolumes()
	if len(volumes) <= fewObjects {
		for _, o := range volumes {
			if volume, err := all.Get(ctx, o.Name, metav1.GetOptions{}); err == nil {
				add(volume)
			}
		}
		return claims
	}
	wanted := make(map[string]bool, len(volumes))
	for _, o := range volumes {
		wanted[o.Name] = true
	}
	pages(classPage, func(page metav1.ListOptions) (string, error) {
		list, err := all.List(ctx, page)
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			if wanted[list.Items[i].Name] {
				add(&list.Items[i])
			}
		}
		return list.Continue, nil
	})
	return claims
}
