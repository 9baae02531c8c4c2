package undo

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object returns an object in the form in which it is created now: with references to existing owners, without the
// fields that the server sets, and with the annotation for its former UID. hasStatus is true if its status is a
// subresource. If the object cannot be created, because the creation of its namespace or its definition has failed,
// Object returns the reason.
//
//nolint:revive // flag-parameter: hasStatus is a fact about the kind
func (p *Plan) Object(s *Step, hasStatus bool) (*unstructured.Unstructured, string) {
	for _, place := range s.kept.Scopes() {
		if on := p.at[place]; on != nil && on.Outcome.IsMissing() && on.UID == "" {
			return nil, on.place.String() + " could not be made"
		}
	}
	if why := p.claimMissing(s); why != "" {
		return nil, why
	}
	if s.place.Kind == volumeKind && p.isReleased(s) { // another claim may have taken the name since the plan
		p.noteReleased(s)
	}
	o := s.kept.Object.DeepCopy()
	metadata, _ := o.Object["metadata"].(map[string]any)
	for _, field := range []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
		"managedFields", "selfLink", "ownerReferences", "finalizers",
	} {
		delete(metadata, field)
	}
	if p.options.Finalizers {
		if finalizers := s.kept.finalizers(); len(finalizers) > 0 {
			o.SetFinalizers(finalizers)
		}
	}
	annotations := maps.Clone(o.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[Annotation] = string(s.kept.UID())
	o.SetAnnotations(annotations)
	if owners := p.owners(s); len(owners) > 0 {
		o.SetOwnerReferences(owners)
	}
	if hasStatus {
		delete(o.Object, "status")
	}
	p.clean(o, s.place.Kind)
	return o, ""
}

// owners returns the references to existing owners, with their UIDs, and notes the other ones.
func (p *Plan) owners(s *Step) []metav1.OwnerReference {
	var all []metav1.OwnerReference
	for _, r := range s.kept.Object.GetOwnerReferences() {
		now := p.present[r.UID]
		if now == "" {
			p.noteLost(s, r)
			continue
		}
		r.UID = now
		all = append(all, r)
	}
	return all
}

// noteLost adds a note about a reference that this run cannot restore.
func (p *Plan) noteLost(s *Step, r metav1.OwnerReference) {
	owner := p.steps[r.UID]
	switch {
	case p.missingOwners[r.UID] != "":
		s.note("without its owner " + r.Kind + " " + r.Name + ", which " + p.missingOwners[r.UID])
	case owner != nil && owner.Outcome == Remade:
		s.note("without its owner " + r.Kind + " " + r.Name + ", which is another object now: only --relink makes it its owner")
	case owner != nil && (owner.Outcome.IsMissing() || owner.Outcome == LeftOut):
		s.note("without its owner " + r.Kind + " " + r.Name + ", which was not restored")
	}
}

// noteUnlinked adds notes about the postponed owners that could not be created.
func (p *Plan) noteUnlinked() {
	for _, s := range p.Steps {
		for _, r := range s.kept.Object.GetOwnerReferences() {
			if s.UID != "" && s.postponed[r.UID] && p.present[r.UID] == "" {
				p.noteLost(s, r)
			}
		}
	}
}

// clean removes the fields that depend on the old UID or on the old place of an object.
func (p *Plan) clean(o *unstructured.Unstructured, kind schema.GroupKind) {
	switch kind {
	case namespaceKind:
		unstructured.RemoveNestedField(o.Object, "spec", "finalizers")
	case podKind:
		unstructured.RemoveNestedField(o.Object, "spec", "nodeName")
		unstructured.RemoveNestedField(o.Object, "spec", "ephemeralContainers") // no pod is created with any
	case volumeKind:
		p.cleanVolume(o)
	case claimKind:
		annotations := o.GetAnnotations()
		delete(annotations, "pv.kubernetes.io/bind-completed")
		delete(annotations, "pv.kubernetes.io/bound-by-controller")
		o.SetAnnotations(annotations)
	case jobKind:
		cleanJob(o)
	case schema.GroupKind{Group: "discovery.k8s.io", Kind: "EndpointSlice"}:
		p.relinkTargets(o.Object["endpoints"])
	case schema.GroupKind{Kind: "Endpoints"}:
		subsets, _ := o.Object["subsets"].([]any)
		for _, subset := range subsets {
			if fields, ok := subset.(map[string]any); ok {
				p.relinkTargets(fields["addresses"])
				p.relinkTargets(fields["notReadyAddresses"])
			}
		}
	}
}

// cleanVolume reserves a volume for its claim. Without a UID, any claim of that name would get it. If its claim is not
// restored, the volume keeps the old UID: it is Released, and no claim gets it.
func (p *Plan) cleanVolume(o *unstructured.Unstructured) {
	place, uid := claimed(o)
	unstructured.RemoveNestedField(o.Object, "spec", "claimRef", "resourceVersion")
	unstructured.RemoveNestedField(o.Object, "spec", "claimRef", "uid")
	claim := p.claimOf(o, uid)
	if claim != nil {
		uid = claim.kept.UID()
	}
	now := p.claimNow(uid, o.GetName())
	if p.isWithout(claim, uid, o.GetName()) {
		now = uid
	}
	if now != "" && place.Name != "" {
		_ = unstructured.SetNestedField(o.Object, string(now), "spec", "claimRef", "uid") // it is a map
	}
}

// claimed returns the place and the UID of the claim that a volume is for; the UID is empty before they are bound.
func claimed(volume *unstructured.Unstructured) (Place, types.UID) {
	ref, _, _ := unstructured.NestedStringMap(volume.Object, "spec", "claimRef")
	return Place{claimKind, ref["namespace"], ref["name"]}, types.UID(ref["uid"])
}

// claimOf returns the claim that was bound to a volume, by its UID in the volume at that time; nil if it was not kept.
// Another claim of the name may name the volume, too, and was never bound to it.
func (p *Plan) claimOf(volume *unstructured.Unstructured, bound types.UID) *Step {
	place, _ := claimed(volume)
	s := p.at[place]
	if s == nil || volumeOf(s.kept) != volume.GetName() || bound != "" && bound != s.kept.UID() {
		return nil
	}
	return s
}

// claimOfKept returns the claim that was bound to a kept volume; nil if it was not kept.
func (p *Plan) claimOfKept(s *Step) *Step {
	_, bound := claimed(s.kept.Object)
	return p.claimOf(s.kept.Object, bound)
}

// claimNow returns the present UID of a claim, by its former UID, for a volume. It is empty for a claim that only --relink has
// accepted, and that is bound to another volume: the controller of volumes would take this one for superfluous.
func (p *Plan) claimNow(former types.UID, volume string) types.UID {
	if p.otherVolume(former, volume) != "" {
		return ""
	}
	return p.present[former]
}

// otherVolume returns the volume to which the claim is bound that --relink has accepted for a former one, unless it is this
// volume; empty for none.
func (p *Plan) otherVolume(former types.UID, volume string) string {
	name := p.relinked[p.present[former]]
	if name == volume {
		return ""
	}
	return name
}

// isWithout reports whether a volume is created for no claim, not even a later one: its claim by the former UID. claim is its
// step, or nil if it is not among the kept objects.
func (p *Plan) isWithout(claim *Step, former types.UID, volume string) bool {
	isGivenUp := claim == nil || claim.Outcome == LeftOut || p.otherVolume(former, volume) != ""
	return isGivenUp && former != "" && p.claimNow(former, volume) == ""
}

// formerClaim returns the UID of the claim of a kept volume; empty if it had none.
func (p *Plan) formerClaim(s *Step) types.UID {
	if claim := p.claimOfKept(s); claim != nil {
		return claim.kept.UID()
	}
	_, bound := claimed(s.kept.Object)
	return bound
}

// findClaims finds the claims of volumes that are not among the kept objects, and exist or could not be read.
func (p *Plan) findClaims(cluster Cluster) {
	for _, s := range p.Steps {
		if s.place.Kind != volumeKind || p.claimOfKept(s) != nil {
			continue
		}
		place, bound := claimed(s.kept.Object)
		e, there := cluster.Existing[place]
		switch why := cluster.unread(place); {
		case bound == "":
		case there && !e.Terminating && (e.UID == bound || e.UndoneFrom == bound):
			p.is(bound, e.UID, claimKind)
		case there && !e.Terminating && p.options.Relink:
			p.is(bound, e.UID, claimKind)
			p.relinked[e.UID] = e.VolumeName
		case !there && why != "":
			p.unreadClaims[bound] = why
		}
	}
}

// isReleased reports whether a volume is created without a claim that it was bound to.
func (p *Plan) isReleased(s *Step) bool {
	return p.isWithout(p.claimOfKept(s), p.formerClaim(s), s.place.Name)
}

// claimUnread returns the reason why it is unknown whether the claim of a volume exists; empty if it is known.
func (p *Plan) claimUnread(s *Step) string {
	if claim := p.claimOfKept(s); claim != nil {
		return claim.unread
	}
	_, bound := claimed(s.kept.Object)
	return p.unreadClaims[bound]
}

// reclaimed returns the policy by which the storage of a volume without its claim is deleted or emptied, or "".
func reclaimed(volume *unstructured.Unstructured) string {
	policy, _, _ := unstructured.NestedString(volume.Object, "spec", "persistentVolumeReclaimPolicy")
	if policy == "Retain" {
		return ""
	}
	return policy
}

// claimMissing returns the reason not to create a volume, or "". Without its own claim, another claim of that name
// would get the data, or the controller of volumes would delete it.
func (p *Plan) claimMissing(s *Step) string {
	if s.place.Kind != volumeKind {
		return ""
	}
	claim := p.claimOfKept(s)
	switch {
	case p.isReleased(s):
		return p.lostWithoutClaim(s)
	case claim == nil || p.present[claim.kept.UID()] != "":
		return ""
	case claim.Outcome == Occupied:
		return "another claim has the name of its own, " + claim.place.Namespace + "/" + claim.place.Name + ", and would get it: only --relink gives it the volume"
	case claim.Outcome.IsMissing():
		return "its claim " + claim.place.Namespace + "/" + claim.place.Name + " was not restored, and another one of that name would get it"
	}
	return ""
}

// lostWithoutClaim returns the reason not to create a volume without its claim, or "".
func (p *Plan) lostWithoutClaim(s *Step) string {
	policy := reclaimed(s.kept.Object)
	if policy == "" {
		return ""
	}
	place, _ := claimed(s.kept.Object)
	lost := "its storage would be lost by its reclaim policy " + policy
	if other := p.otherVolume(p.formerClaim(s), s.place.Name); other != "" {
		return "its claim " + place.Namespace + "/" + place.Name + " is not restored, and " + lost + ": the present claim is bound to volume " + other + "; if you do not need that one, delete the claim, and undo the deletion of both"
	}
	if why := p.claimUnread(s); why != "" {
		return "its claim " + place.Namespace + "/" + place.Name + " could not be read (" + why + "), and without the claim " + lost + ": run the same undo again once the claim can be read"
	}
	return "its claim " + place.Namespace + "/" + place.Name + " is not restored, and " + lost + ": undo the deletion of the claim, too"
}

// noteReleased adds a note about a volume that is created without a claim that it was bound to.
func (p *Plan) noteReleased(s *Step) {
	place, _ := claimed(s.kept.Object)
	claim := "its claim " + place.Namespace + "/" + place.Name
	if other := p.otherVolume(p.formerClaim(s), s.place.Name); other != "" {
		s.note(claim + " is not restored, and the present one is bound to volume " + other + ": no claim gets this volume until you remove its spec.claimRef")
		return
	}
	if why := p.claimUnread(s); why != "" {
		s.note(claim + " could not be read (" + why + "): if an undo has created the claim again, run the same undo again once the claim can be read")
		return
	}
	s.note(claim + " is not restored: no claim gets it until you remove its spec.claimRef")
}

// cleanJob removes the selector and the labels that the server derives from the UID of a Job.
func cleanJob(o *unstructured.Unstructured) {
	if manual, _, _ := unstructured.NestedBool(o.Object, "spec", "manualSelector"); manual {
		return
	}
	unstructured.RemoveNestedField(o.Object, "spec", "selector")
	for _, label := range []string{"controller-uid", "batch.kubernetes.io/controller-uid"} {
		unstructured.RemoveNestedField(o.Object, "spec", "template", "metadata", "labels", label)
		unstructured.RemoveNestedField(o.Object, "metadata", "labels", label)
	}
}

// relinkTargets sets the new UIDs in the targetRefs of addresses.
func (p *Plan) relinkTargets(addresses any) {
	all, _ := addresses.([]any)
	for _, address := range all {
		fields, _ := address.(map[string]any)
		target, ok := fields["targetRef"].(map[string]any)
		if !ok {
			continue
		}
		delete(target, "resourceVersion")
		old, _ := target["uid"].(string)
		if now := p.present[types.UID(old)]; now != "" {
			target["uid"] = string(now)
		} else {
			delete(target, "uid")
		}
	}
}
