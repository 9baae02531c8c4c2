package undo

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Unlinked returns the existing objects that lack references to existing owners: these need a second write.
func (p *Plan) Unlinked() []*Step {
	var all []*Step
	for _, s := range p.Steps {
		if _, lacks := p.Owners(s, s.has); lacks {
			all = append(all, s)
		}
	}
	return all
}

// Owners returns the references that an object should have, and whether it lacks any of them; has are its present
// ones. Additional references stay, except those to the old UID of an owner.
func (p *Plan) Owners(s *Step, has []metav1.OwnerReference) (owners []metav1.OwnerReference, lacks bool) {
	switch {
	case s.UID == "":
		return nil, false
	case s.Outcome == Made || s.Outcome == MadeBefore || s.Outcome == Exists:
	default:
		return nil, false
	}
	owners = slices.Clone(has)
	for _, r := range s.kept.Object.GetOwnerReferences() {
		old, now := r.UID, p.present[r.UID]
		isThere := slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return o.UID == now })
		if now == "" || isThere || s.Outcome == Exists && now == old {
			continue
		}
		r.UID = now
		owners = append(slices.DeleteFunc(owners, func(o metav1.OwnerReference) bool { return o.UID == old }), r)
		lacks = true
	}
	return owners, lacks
}

// Linked records the references of an object.
func (p *Plan) Linked(s *Step, owners []metav1.OwnerReference) { s.has = owners }

// Volumes returns the volumes whose claims may exist again under another UID: their claimRef needs a second write.
func (p *Plan) Volumes() []string {
	var all []string
	for _, s := range p.Steps {
		if now := p.claimNow(s.kept.UID(), volumeOf(s.kept)); volumeOf(s.kept) != "" && now != "" && now != s.kept.UID() {
			all = append(all, volumeOf(s.kept))
		}
		bound := p.boundBefore(s)
		if now := p.claimNow(bound, s.place.Name); bound != "" && now != "" && now != bound {
			all = append(all, s.place.Name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// boundBefore returns the old UID of the claim of an existing volume, if the claim is not among the kept objects; empty
// otherwise. An earlier undo could not read the claim, or the claim did not exist yet.
func (p *Plan) boundBefore(s *Step) types.UID {
	if s.place.Kind != volumeKind || s.UID == "" || s.Outcome == Made || p.claimOfKept(s) != nil {
		return ""
	}
	_, bound := claimed(s.kept.Object)
	return bound
}

// Claim returns the UID that the claimRef of a volume should have, and whether the claimRef must be updated. Its
// present UID must be the old claim's, or empty if the claim is among the kept objects.
func (p *Plan) Claim(volume *unstructured.Unstructured) (types.UID, bool) {
	place, has := claimed(volume)
	if s := p.claimOf(volume, ""); s != nil {
		if now := p.claimNow(s.kept.UID(), volume.GetName()); now != "" {
			return now, has == "" || has == s.kept.UID() && has != now
		}
	}
	s := p.at[Place{Kind: volumeKind, Name: volume.GetName()}]
	if s == nil || p.boundBefore(s) == "" {
		return "", false
	}
	claim, bound := claimed(s.kept.Object)
	now := p.claimNow(bound, volume.GetName())
	return now, now != "" && claim == place && has == bound && has != now
}

// VolumeFailed records that the claimRef of a volume could not be written.
func (p *Plan) VolumeFailed(volume, why string) {
	p.noteVolume(volume, "is still reserved for the old UID of the claim: "+why)
}

// VolumeUnread records that a volume could not be read: it may be gone, and if it exists, its claimRef may need a write.
func (p *Plan) VolumeUnread(volume, why string) {
	p.noteVolume(volume, "could not be read ("+why+"): it may be gone, or still be reserved for the old UID")
}

// noteVolume adds a note about a volume to its claim, or to the volume itself if the claim is not among the kept objects.
func (p *Plan) noteVolume(volume, says string) {
	for _, s := range p.Steps {
		if volumeOf(s.kept) == volume {
			s.note("its volume " + volume + " " + says)
		}
		if s.place.Name == volume && p.boundBefore(s) != "" {
			s.note("it " + says)
		}
	}
}

// StatusFailed records that the status of an object could not be written.
func (p *Plan) StatusFailed(s *Step, why string) { s.note("without its status: " + why) }
