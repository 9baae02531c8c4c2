package preview

import (
	"fmt"
	"slices"
)

// Changes describes the differences between two reports on the same deletion: new objects, removed objects, and
// changed objects with their new prediction. It is empty if the digests are equal.
func Changes(before, now Report) []string {
	if before.Digest == now.Digest {
		return nil
	}
	var changes []string
	earlier := make(map[string]ObjectReport, len(before.Objects))
	for _, o := range before.Objects {
		earlier[o.UID] = o
	}
	for _, o := range now.Objects {
		name := described(o.Kind, o.Namespace, o.Name)
		was, known := earlier[o.UID]
		delete(earlier, o.UID)
		switch {
		case !known:
			changes = append(changes, fmt.Sprintf("%s is new: %s", name, o.Says()))
		case was.outlook() != o.outlook():
			changes = append(changes, fmt.Sprintf("%s: %s, before: %s", name, o.outlook(), was.outlook()))
		case was.ResourceVersion != o.ResourceVersion:
			changes = append(changes, fmt.Sprintf("%s was written: version %s, before: %s", name, o.ResourceVersion, was.ResourceVersion))
		case was.Requested != o.Requested && o.Requested:
			changes = append(changes, name+" is named now, and was not before")
		case was.Requested != o.Requested:
			changes = append(changes, name+" was named before, and is not now")
		}
	}
	for _, o := range before.Objects {
		if _, isUnmatched := earlier[o.UID]; isUnmatched {
			changes = append(changes, described(o.Kind, o.Namespace, o.Name)+" is no longer affected, or gone")
		}
	}
	slices.Sort(changes)
	return changes
}

// outlook returns the prediction for the object, without the step and without the state of the controllers of its
// finalizers and the answer of the server, which the digest omits, too.
func (o ObjectReport) outlook() string {
	o.Step, o.Waits, o.Answer = 0, slices.Clone(o.Waits), nil
	for n := range o.Waits {
		o.Waits[n].ServedBy, o.Waits[n].AlsoDeleted = nil, false
	}
	if o.Fate == Deleted {
		return "deleted" + o.notes()
	}
	return o.Says()
}
