package anomaly

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Write is a write that was carried out.
type Write struct {
	Time   time.Time
	Client Client
	Verb   string // of the API
	Object Name
	UID    string
	// Version is the resourceVersion of the object after the write.
	Version uint64
	// Gone: the object does not exist any more.
	Gone bool
	// Content is the object as in JSON, if it exists.
	Content map[string]any
	// Answered: the client gets the answer.
	Answered bool
}

// life has the facts about one object from its creation on, or from the first write that the detector sees.
type life struct {
	name     Name
	uid      string
	version  uint64
	created  uint64 // 0: before
	creator  Client
	answered bool // the creator has got the answer
	gone     bool
	deleting bool

	owner           string // the UID of its controller
	ownerGeneration int64  // when it was created
	generation      int64
	purpose         string         // equal for two children that serve the same; empty: not known
	others          bool           // somebody else than the creator has changed it
	ownerWritten    bool           // its creator has written to the owner since, without its name
	twins           []*life        // earlier children of the same purpose, which its creator had not been shown
	children        []*life        // that name it as their controller
	entries         map[string]add // finalizers, labels, annotations and owner references
	words           map[string]bool
	states          states
}

// add is who added an entry, and when.
type add struct {
	by      Client
	version uint64 // 0: before
}

// Wrote takes a write, and checks it. Writes of one object may come in another order than that of their
// resourceVersions: those that come too late are not checked.
func (d *Detector) Wrote(w Write) {
	d.bound()
	content := contentOf(w.Content)
	before := d.lives[w.UID]
	switch {
	case before == nil && w.Gone:
		return
	case before == nil:
		before = d.begin(w, content)
	case w.Gone:
		d.deleted(w, before)
		d.end(w, before)
		return
	case w.Version > before.version:
		d.changed(w, content, before)
	case w.Version < before.version:
		return
	}
	before.states.add(d, w, content.digest)
	if w.Answered {
		d.saw(sight{w.Client, w.UID, true}, w.Version)
	}
}

// begin keeps a new object.
func (d *Detector) begin(w Write, c content) *life {
	l := &life{
		name: w.Object, uid: w.UID, version: w.Version, owner: c.owner, generation: c.generation, deleting: c.deleting,
		entries: map[string]add{}, words: c.words,
	}
	added := add{}
	if w.Verb == "create" {
		l.created, l.creator, l.answered = w.Version, w.Client, w.Answered
		added = add{w.Client, w.Version}
		if c.generateName != "" {
			l.purpose = w.Object.Resource + " " + w.Object.Namespace + "/" + c.generateName + " " + c.labels
		}
	}
	for entry := range c.entries {
		l.entries[entry] = added
	}
	d.lives[w.UID], d.current[w.Object] = l, l
	if l.deleting {
		d.deleting[l.uid] = l
	}
	if owner := d.lives[l.owner]; owner != nil {
		l.ownerGeneration = owner.generation
		d.twins(w, owner, l)
		owner.children = append(owner.children, l)
	}
	return l
}

// changed checks a change of an object, and keeps it.
func (d *Detector) changed(w Write, c content, l *life) {
	switch {
	case c.deleting && !l.deleting:
		d.deleted(w, l)
	case l.deleting:
		d.finalized(w, c, l)
	}
	d.lost(w, c, l)
	for entry := range l.entries {
		if !c.entries[entry] {
			delete(l.entries, entry)
		}
	}
	for entry := range c.entries {
		if _, known := l.entries[entry]; !known {
			l.entries[entry] = add{w.Client, w.Version}
		}
	}
	l.others = l.others || w.Client != l.creator
	text := ""
	for _, child := range l.children {
		if child.purpose == "" || child.gone || child.ownerWritten || child.creator != w.Client {
			continue
		}
		if text == "" {
			text = c.text()
		}
		child.ownerWritten = !strings.Contains(text, child.name.Name)
	}
	if c.deleting {
		d.deleting[l.uid] = l
	}
	l.version, l.generation, l.deleting, l.words = w.Version, c.generation, c.deleting, c.words
}

// end keeps that an object is gone.
func (d *Detector) end(w Write, l *life) {
	if l.deleting {
		d.finalized(w, content{}, l)
	}
	l.gone, l.version = true, w.Version
	delete(d.deleting, l.uid)
	if d.current[l.name] == l {
		delete(d.current, l.name)
		d.former[l.name] = l
	}
}

// lost checks that a write removes no entry that another client has added, and that this one cannot know.
func (d *Detector) lost(w Write, c content, l *life) {
	for _, entry := range slices.Sorted(maps.Keys(l.entries)) {
		added := l.entries[entry]
		if c.entries[entry] || added.version == 0 || added.by == w.Client || added.by == (Client{}) ||
			d.knowledge.knows(w.Client, l, added.version) || !d.knowledge.knows(w.Client, l, max(l.created, 1)) {
			continue
		}
		d.accuse(l.uid+" "+entry+" "+w.Client.Program, Anomaly{
			Time: w.Time, Kind: EntryLost, Client: w.Client, Object: l.name,
			Text: at(l.name, w.Version) + ": the write removed " + entry + ", which " + added.by.Program + " had added at " +
				versionText(added.version) + ", after the latest state that the client had seen",
		})
	}
}
