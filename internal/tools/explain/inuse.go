package explain

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Volumes, volume claims and classes stay while they are in use (R23), by the rules of package inuse.

// claimUsers explains a PersistentVolumeClaim by the pods that use it.
func (e *Explainer) claimUsers(o *inventory.Object) Wait {
	var waits []Wait
	for _, p := range e.podsOf(types.NamespacedName{Namespace: o.Namespace, Name: o.Name}) {
		if e.Inventory.Uses(p, o.Object) {
			waits = append(waits, e.user(p))
		}
	}
	if len(waits) > 0 {
		return Wait{On: OnUser, Says: "in use by " + counted(len(waits), "pod"), Waits: waits}
	}
	if u := e.unreadOf("", "pods", o.Namespace); len(u) > 0 || e.Inventory.Pods == nil {
		return Wait{On: OnUnread, State: Unknown, Says: "it is unknown whether pods use it", Next: []Step{{"find the pods that use it", describe(o)}}}
	}
	return e.foreign(o, inuse.PVCProtection)
}

// user explains a PersistentVolumeClaim by a pod that uses it. One that has ended uses it, too.
func (e *Explainer) user(o *inventory.Object) Wait {
	ref := refOf(o)
	switch {
	case o.Phase != ownership.Active:
		return e.via(OnUser, o, ref.String()+" uses it, and is being deleted")
	case e.Inventory.Pods[o.UID].IsFinished():
		return Wait{
			On: OnUser, Object: &ref, State: Stuck, Says: ref.String() + " has ended, and uses it for as long as it exists",
			Next: []Step{{"delete the pod, or its owner, once nothing needs them", get(o)}},
		}
	}
	return Wait{
		On: OnUser, Object: &ref, State: Stuck, Says: ref.String() + " uses it, and is not being deleted",
		Next: []Step{{"find the owner of the pod: the pod is deleted only if its owner is deleted or scaled down", get(o)}},
	}
}

// boundClaim explains a PersistentVolume by the claim that is bound to it.
func (e *Explainer) boundClaim(o *inventory.Object) Wait {
	if e.Facts == nil {
		return e.foreign(o, inuse.PVProtection)
	}
	read := e.Facts.Volume(o.Name)
	volume, claim := read.Value.Volume, read.Value.Claim
	if read.Unread != "" || volume == nil || ownership.UID(volume.UID) != o.UID || !inuse.IsBound(volume, claim) {
		return e.foreign(o, inuse.PVProtection)
	}
	return Wait{On: OnUser, Says: "in use by its claim", Waits: []Wait{e.userByField(fieldUser{
		ref:  Ref{Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: ownership.UID(claim.UID)},
		uses: "is bound to it", isDeleting: claim.DeletionTimestamp != nil,
		next: Step{
			"find out whether anything needs the claim: the volume goes once the claim is gone",
			"kubectl describe " + escape.Shell("persistentvolumeclaims/"+claim.Name) + " -n " + escape.Shell(claim.Namespace),
		},
	})}}
}

// fieldUser is an object that uses another one by a field, as the server has it.
type fieldUser struct {
	ref        Ref
	uses       string
	isDeleting bool
	next       Step // if it is not being deleted
}

// userByField explains an object by one that uses it. The inventory may not have that one.
func (e *Explainer) userByField(user fieldUser) Wait {
	says := user.ref.String() + " " + user.uses
	known := e.Inventory.Object(user.ref.UID)
	switch {
	case known != nil && known.Phase != ownership.Active:
		return e.via(OnUser, known, says+", and is being deleted")
	case known != nil && e.isToGo(known):
		return e.via(OnUser, known, says+", and is to be deleted, too")
	case user.isDeleting:
		return Wait{
			On: OnUser, Object: &user.ref, State: Unknown, Says: says + ", and is being deleted",
			Next: []Step{{"find out why it is still there", "coppice explain " + commandName(user.ref)}},
		}
	}
	return Wait{On: OnUser, Object: &user.ref, State: Stuck, Says: says + ", and is not being deleted", Next: []Step{user.next}}
}

// commandName returns the name of an object for a command, quoted for the shell.
func commandName(o Ref) string {
	return escape.Shell(strings.ToLower(o.Kind)+"/"+o.Name) + namespaceFlag(o.Namespace)
}

// classUsers explains a VolumeAttributesClass by the volumes and volume claims that name it.
func (e *Explainer) classUsers(o *inventory.Object) Wait {
	if e.Facts == nil {
		return e.foreign(o, inuse.VACProtection)
	}
	var waits []Wait
	users := e.Facts.UsersOfClass(o.Name).Value // none if they could not be read
	for _, user := range users {
		waits = append(waits, e.userByField(fieldUser{
			ref: Ref{Kind: user.Kind, Namespace: user.Namespace, Name: user.Name, UID: user.UID}, uses: "names it", isDeleting: user.Deleting,
			next: Step{"give the volume claims another class", "kubectl get persistentvolumes,persistentvolumeclaims -A"},
		}))
	}
	if len(waits) == 0 {
		return e.foreign(o, inuse.VACProtection)
	}
	return Wait{On: OnUser, Says: "named by " + counted(len(waits), "object"), Waits: waits}
}
