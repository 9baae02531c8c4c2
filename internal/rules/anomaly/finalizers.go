package anomaly

import "strings"

// isFinalizer reports whether an entry is a finalizer.
func isFinalizer(entry string) bool { return strings.HasPrefix(entry, "the finalizer ") }

// cleaning is a kind of objects that a client removes before it takes its finalizer away.
type cleaning struct {
	client    Client
	finalizer string
	resource  string
}

// clean learns from a deletion what a client removes for an object that is being deleted.
func (d *Detector) clean(w Write, l *life) {
	if w.Client == (Client{}) {
		return
	}
	for _, holder := range d.deleting {
		if holder == l || !l.refersTo(holder) {
			continue
		}
		for entry := range holder.entries {
			if isFinalizer(entry) {
				d.cleaned[cleaning{w.Client, entry, l.name.Resource}] = true
			}
		}
	}
}

// finalized checks a client that removes a finalizer of an object that is being deleted.
func (d *Detector) finalized(w Write, c content, l *life) {
	for entry := range l.entries {
		if c.entries[entry] || !isFinalizer(entry) {
			continue
		}
		resources := map[string]bool{}
		for known := range d.cleaned {
			if known.client == w.Client && known.finalizer == entry {
				resources[known.resource] = true
			}
		}
		if len(resources) > 0 {
			d.remains(w, l, entry, resources)
		}
	}
}

// remains finds objects that a client has created for an object, and that its cleaning up has missed.
func (d *Detector) remains(w Write, l *life, entry string, resources map[string]bool) {
	for _, left := range d.lives {
		if !resources[left.name.Resource] || left.gone || left.deleting || left.created == 0 || left.creator != w.Client || left.owner == l.uid {
			continue
		}
		watched, covered := d.knowledge.watched(w.Client, left.name)
		if !covered || !left.refersTo(l) || d.knowledge.shown(w.Client, left, left.created) {
			continue
		}
		d.accuse(l.uid+" "+left.uid, Anomaly{
			Time: w.Time, Kind: FinalizerEarly, Client: w.Client, Object: l.name,
			Text: "the client removed " + entry + " from " + at(l.name, w.Version) + " while " + at(left.name, left.created) +
				" is there, which refers to it: its watch had come to " + versionText(watched),
		})
	}
}
