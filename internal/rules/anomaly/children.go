package anomaly

import (
	"fmt"
	"slices"
)

func versionText(version uint64) string { return fmt.Sprintf("resourceVersion %d", version) }

// mostTwins bounds the twins of a child that are kept.
const mostTwins = 8

// twins finds the children of an owner that serve the same purpose as a new one, and that its creator had not been shown.
// A creator of several equal children makes them one after the other without waiting, as a ReplicaSet does. So a twin
// alone is no anomaly: either the creator has written to the owner in between, without the name of the first child, or
// it removes one of them as soon as its watch has shown both.
func (d *Detector) twins(w Write, owner, child *life) {
	if child.purpose == "" || owner.gone || owner.deleting {
		return
	}
	watched, covered := d.knowledge.watched(w.Client, child.name)
	if !covered {
		return
	}
	for _, twin := range owner.children {
		if twin == child || twin.purpose != child.purpose || twin.creator != w.Client || !twin.answered || twin.gone || twin.deleting ||
			twin.ownerGeneration != owner.generation || d.knowledge.shown(w.Client, twin, twin.created) {
			continue
		}
		if len(child.twins) < mostTwins {
			child.twins = append(child.twins, twin)
		}
		if twin.ownerWritten {
			d.duplicate(w, child, twin, owner, fmt.Sprintf("its watch had come to %s", versionText(watched)))
		}
	}
}

func (d *Detector) duplicate(w Write, child, twin, owner *life, reason string) {
	d.accuse(child.uid, Anomaly{
		Time: w.Time, Kind: DuplicateChild, Client: w.Client, Object: child.name,
		Text: "the client created " + at(child.name, child.created) + " for " + owner.name.String() + ", which had " +
			at(twin.name, twin.created) + " already: " + reason,
	})
}

// deleted checks the deletion of an object by a client that names it.
func (d *Detector) deleted(w Write, l *life) {
	if l.deleting || w.Verb != "delete" {
		return
	}
	d.surplus(w, l)
	owner := d.lives[l.owner]
	d.clean(w, l)
	watched, covered := d.knowledge.watched(w.Client, l.name)
	former := d.former[l.name]
	if covered && former != nil && l.created > 0 && l.creator != w.Client && !d.knowledge.knows(w.Client, l, l.created) &&
		d.knowledge.knows(w.Client, former, max(former.created, 1)) {
		d.accuse(l.uid, Anomaly{
			Time: w.Time, Kind: SuccessorDeleted, Client: w.Client, Object: l.name,
			Text: "the client deleted " + at(l.name, l.created) + ", and knew only an earlier object of that name: its watch had come to " +
				versionText(watched),
		})
	}
	if owner == nil || owner.gone || owner.deleting || owner.created == 0 || owner.creator == w.Client || l.creator == w.Client {
		return // there is no owner, or the client knows it
	}
	watched, covered = d.knowledge.watched(w.Client, owner.name)
	if covered && !d.knowledge.knows(w.Client, owner, owner.created) {
		d.accuse(l.uid, Anomaly{
			Time: w.Time, Kind: LiveChildDeleted, Client: w.Client, Object: l.name,
			Text: "the client deleted " + at(l.name, l.version) + ", whose owner exists: " + at(owner.name, owner.created) +
				"; its watch of " + owner.name.Resource + " had come to " + versionText(watched),
		})
	}
}

// surplus finds a deletion that takes back the creation of a second child: nobody else has touched the two, the owner has
// the same generation, and the client's watch has shown both.
func (d *Detector) surplus(w Write, l *life) {
	owner := d.lives[l.owner]
	if owner == nil || owner.gone || owner.deleting || l.creator != w.Client || l.others {
		return
	}
	for _, sibling := range owner.children {
		child, twin := l, sibling
		if slices.Contains(sibling.twins, l) {
			child, twin = sibling, l
		} else if !slices.Contains(l.twins, sibling) {
			continue
		}
		if !sibling.others && !sibling.gone && child.ownerGeneration == owner.generation && d.knowledge.shown(w.Client, child, child.created) {
			d.duplicate(w, child, twin, owner, "it deleted one of the two at "+versionText(w.Version)+", once its watch had shown both")
		}
	}
}
