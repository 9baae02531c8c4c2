package preview

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// freeVolume lets the controller that protects PersistentVolumes release a volume without a bound claim.
func (p *play) freeVolume(o *object) {
	claim, known := p.boundClaim(o)
	switch {
	case !known:
	case claim == nil:
		p.dropFinalizers(o, ByProtectionController, func(f string) bool { return f == inuse.PVProtection })
	default:
		p.use(ownership.UID(claim.UID), o)
	}
}

// boundClaim returns the claim that a protected PersistentVolume waits for; nil if it waits for none. known is false
// if the volume could not be read.
func (p *play) boundClaim(o *object) (claim *corev1.PersistentVolumeClaim, known bool) {
	if p.options.Volume == nil || o.Resource.GroupResource() != corev1.Resource("persistentvolumes") ||
		!slices.Contains(o.now.Finalizers, inuse.PVProtection) {
		return nil, false
	}
	read := p.options.Volume(o.Name)
	volume, claim := read.Value.Volume, read.Value.Claim
	if read.Unread != "" || ownership.UID(volume.UID) != o.UID {
		return nil, false
	}
	if claim != nil {
		if loaded := p.objects[ownership.UID(claim.UID)]; loaded != nil && loaded.removed {
			claim = nil
		}
	}
	now := *volume
	now.Finalizers, now.DeletionTimestamp = o.now.Finalizers, &metav1.Time{Time: o.deadline}
	if _, isFree := inuse.DecideVolume(&now, claim).(inuse.RemoveFinalizer); isFree {
		return nil, true
	}
	return claim, true
}

// waitOfVolume returns the wait of a volume for the claim that is bound to it.
func (p *play) waitOfVolume(o *object) (Wait, bool) {
	claim, _ := p.boundClaim(o)
	if claim == nil {
		return Wait{}, false
	}
	w := Wait{Reason: OnUsers, Name: inuse.PVProtection}
	if uid := ownership.UID(claim.UID); p.inventory.Object(uid) != nil {
		w.Objects = []ownership.UID{uid}
	} else {
		w.Unseen = []string{described("PersistentVolumeClaim", claim.Namespace, claim.Name)}
	}
	return w, true
}

// use notes that an object waits for one that uses it.
func (p *play) use(user ownership.UID, o *object) {
	if !slices.Contains(p.used[user], o) {
		p.used[user] = append(p.used[user], o)
	}
}

// freeClass lets the controller that protects VolumeAttributesClasses release a class that nothing names.
func (p *play) freeClass(o *object) {
	users, known := p.classUsers(o)
	if known && len(users) == 0 {
		p.dropFinalizers(o, ByProtectionController, func(f string) bool { return f == inuse.VACProtection })
	}
	for _, user := range users {
		p.use(user.UID, o)
	}
}

// classUsers returns the objects that name a VolumeAttributesClass. known is false if they could not be read.
func (p *play) classUsers(o *object) (users []inventory.ClassUser, known bool) {
	if p.options.Class == nil || o.Kind.Kind != "VolumeAttributesClass" {
		return nil, false
	}
	read := p.options.Class(o.Name)
	isGone := func(user inventory.ClassUser) bool {
		loaded := p.objects[user.UID]
		return loaded != nil && loaded.removed
	}
	return slices.DeleteFunc(slices.Clone(read.Value), isGone), read.Unread == ""
}

// waitOfClass returns the wait of a class for the objects that name it.
func (p *play) waitOfClass(o *object) (Wait, bool) {
	users, _ := p.classUsers(o)
	w := Wait{Reason: OnUsers, Name: inuse.VACProtection}
	for _, user := range users {
		if p.inventory.Object(user.UID) != nil {
			w.Objects = append(w.Objects, user.UID)
		} else {
			w.Unseen = append(w.Unseen, described(user.Kind, user.Namespace, user.Name))
		}
	}
	slices.Sort(w.Objects)
	return w, len(users) > 0
}
