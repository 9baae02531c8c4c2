package preview

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// freeClaim lets the controller that protects PersistentVolumeClaims release a claim that no pod uses any more.
func (p *play) freeClaim(o *object) {
	if users, known := p.claimUsers(o); known && len(users) == 0 {
		p.dropFinalizers(o, func(f string) bool { return f == inuse.PVCProtection })
	}
}

// claimUsers returns the pods that a protected PersistentVolumeClaim waits for. known is false if there may be unread
// pods.
func (p *play) claimUsers(o *object) (users []ownership.UID, known bool) {
	if o.Resource.GroupResource() != corev1.Resource("persistentvolumeclaims") || !slices.Contains(o.now.Finalizers, inuse.PVCProtection) {
		return nil, false
	}
	pods := p.inventory.Resource(ownership.Kind{Kind: "Pod"})
	if pods == nil || p.inventory.Pods == nil || !p.inventory.Complete(pods, o.Namespace) {
		return nil, false
	}
	if p.unreadRemoved[o.Namespace] < len(p.unreadPods[o.Namespace]) {
		return nil, false
	}
	claim := claimOf(o)
	for _, one := range p.users[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] {
		if loaded := p.objects[one.UID]; loaded != nil && loaded.removed {
			continue
		}
		now := p.inventory.Pods[one.UID].Object(metav1.ObjectMeta{Name: one.Name, Namespace: one.Namespace, UID: types.UID(one.UID)})
		if _, uses := inuse.DecideClaim(claim, []corev1.Pod{now}).(inuse.Keep); uses {
			users = append(users, one.UID)
		}
	}
	slices.Sort(users)
	return users, true
}

// claimOf returns a claim with the fields that the controller's decision reads.
func claimOf(o *object) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: o.Name, Namespace: o.Namespace, UID: types.UID(o.UID),
		Finalizers: o.now.Finalizers, DeletionTimestamp: &metav1.Time{Time: o.deadline},
	}}
	for _, r := range o.now.Owners {
		isController := r.Controller == ownership.True
		claim.OwnerReferences = append(claim.OwnerReferences, metav1.OwnerReference{
			APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name, UID: types.UID(r.UID), Controller: &isController,
		})
	}
	return claim
}
