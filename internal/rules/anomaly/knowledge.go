package anomaly

// Scope is a part of a resource: one namespace, or all if Namespace is empty.
type Scope struct{ Resource, Namespace string }

func (s Scope) covers(n Name) bool {
	return s.Resource == n.Resource && (s.Namespace == "" || s.Namespace == n.Namespace)
}

// knowledge has the states that clients have seen: all changes of a scope up to a resourceVersion, or single objects.
type knowledge struct {
	scopes  map[Client]map[Scope]uint64
	number  int // of scopes
	objects map[sight]uint64
	watches map[uint64]*watch
}

// sight is an object that a client has seen, either as an answer to its own write or otherwise.
type sight struct {
	client Client
	uid    string
	write  bool
}

// watch is an open watch of a scope.
type watch struct {
	client  Client
	scope   Scope
	version uint64
}

func newKnowledge() knowledge {
	return knowledge{scopes: map[Client]map[Scope]uint64{}, objects: map[sight]uint64{}, watches: map[uint64]*watch{}}
}

// size returns the number of entries, but for watches, which end.
func (k *knowledge) size() int { return len(k.objects) + k.number }

// Listed says that a client knows a scope as it was at a resourceVersion: from a list of all its objects, or as the state
// from which its watch begins.
func (d *Detector) Listed(c Client, s Scope, version uint64) {
	d.bound()
	d.knowledge.list(c, s, version)
}

func (k *knowledge) list(c Client, s Scope, version uint64) {
	scopes := k.scopes[c]
	if scopes == nil {
		scopes = map[Scope]uint64{}
		k.scopes[c] = scopes
	}
	if _, known := scopes[s]; !known {
		k.number++
	}
	scopes[s] = max(scopes[s], version)
}

// Watches says that a client has a watch of all objects of a scope, which begins after a resourceVersion. The number is
// the caller's, for Shows and Ends.
func (d *Detector) Watches(number uint64, c Client, s Scope, version uint64) {
	d.knowledge.watches[number] = &watch{c, s, version}
	d.Listed(c, s, version)
}

// Shows says that a watch has come to a resourceVersion: by an event, which comes in the order of the writes, or by a
// bookmark.
func (d *Detector) Shows(number, version uint64) {
	if w := d.knowledge.watches[number]; w != nil {
		w.version = max(w.version, version)
		d.Listed(w.client, w.scope, w.version)
	}
}

// Ends says that a watch has ended.
func (d *Detector) Ends(number uint64) { delete(d.knowledge.watches, number) }

// Read says that a client has read a single object, or has seen it in a list or a watch of a part of a scope.
func (d *Detector) Read(c Client, uid string, version uint64) {
	d.saw(sight{client: c, uid: uid}, version)
}

func (d *Detector) saw(s sight, version uint64) {
	d.bound()
	d.knowledge.objects[s] = max(d.knowledge.objects[s], version)
}

// watched returns the resourceVersion up to which a client knows the scopes around an object; false: it reads none.
func (k *knowledge) watched(c Client, n Name) (version uint64, covered bool) {
	for s, v := range k.scopes[c] {
		if s.covers(n) {
			version, covered = max(version, v), true
		}
	}
	return version, covered
}

// shown reports whether a client has read a change of an object; the answer to a write of its own does not count.
func (k *knowledge) shown(c Client, l *life, version uint64) bool {
	watched, _ := k.watched(c, l.name)
	return watched >= version || k.objects[sight{client: c, uid: l.uid}] >= version
}

// knows reports whether a client can know a change of an object.
func (k *knowledge) knows(c Client, l *life, version uint64) bool {
	return k.shown(c, l, version) || k.objects[sight{client: c, uid: l.uid, write: true}] >= version
}

// openWatches returns the open watches of a client around an object: how many, and the least of their versions.
func (k *knowledge) openWatches(c Client, n Name) (open int, least uint64) {
	for _, w := range k.watches {
		if w.client != c || !w.scope.covers(n) {
			continue
		}
		if open++; open == 1 || w.version < least {
			least = w.version
		}
	}
	return open, least
}
