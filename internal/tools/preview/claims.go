package preview

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// freeClaim lets the controller that protects PersistentVolumeClaims release a claim that no pod uses any more.
func (p *play) freeClaim(o *object) {
	if users, known := p.claimUsers(o); known && len(users) == 0 {
		p.dropFinalizers(o, ByProtectionController, func(f string) bool { return f == inuse.PVCProtection })
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
	for _, one := range p.users[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] {
		if loaded := p.objects[one.UID]; (loaded == nil || !loaded.removed) && p.inventory.Uses(one, o.now) {
			users = append(users, one.UID)
		}
	}
	slices.Sort(users)
	return users, true
}
