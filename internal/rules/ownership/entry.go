package ownership

import (
	"iter"
	"strings"
)

type (
	entryID   uint32
	claimID   uint32
	refID     uint32
	kindID    uint32
	spaceID   uint32 // a namespace; zero means cluster-scoped
	listID    uint32 // a list of finalizers
	versionID uint32 // an apiVersion
)

type state uint8

const (
	// vacant records are free.
	vacant state = iota
	// presumed entries are known only from the claims of dependents.
	presumed
	// absent entries have had their DELETED event in this epoch (R3). Kind and namespace stay as
	// they were last observed, if ever; version is the event's.
	absent
	// observed entries hold the latest observation of the feed.
	observed
)

// mark is a small fact about an entry.
type mark uint8

const (
	// oddUID: the UID is not a canonical UUID; its text is in Graph.oddUIDs.
	oddUID mark = 1 << iota
	// stale: observed in an earlier epoch, so its version cannot be compared (R4).
	stale
	// protected: has the label that protects it from deletion (R28).
	protected
)

// revision is a resourceVersion that is a plain number; its halves do not make the records longer as a uint64 would, to
// align it.
type revision [2]uint32

func newRevision(n uint64) revision { return revision{uint32(n >> 32), uint32(n)} }

func (r revision) number() uint64 { return uint64(r[0])<<32 | uint64(r[1]) }

// entry holds everything that the graph knows about one UID. There is one entry for each UID that
// is observed or claimed, and no other. Entries, claims and references have no pointers.
type entry struct {
	uid        [16]byte
	version    revision // else zero and in Graph.oddVersions
	name       nameID
	kind       kindID
	namespace  spaceID
	finalizers listID
	references refID   // first of its own references, when observed
	claims     claimID // first of the claims on this UID
	phase      Phase
	state      state
	marks      mark
	list       listNumber // of the last list of its kind that had it, see list.go
}

// claim is one statement about an owner, shared by all references that make it.
// It is keyed by the dependent's own namespace, even if the owner is
// cluster-scoped: the scope of the kind may not be known yet, or may change.
type claim struct {
	owner      entryID
	kind       kindID
	namespace  spaceID // of the dependents
	name       nameID
	first      refID   // ring of the references that state it; blocking ones first
	next, prev claimID // other claims on the same owner
}

// reference is one owner reference of one observed object.
type reference struct {
	dependent  entryID
	claim      claimID
	sibling    refID // next reference of the same dependent, in the stored order
	next, prev refID // ring of the references that state the same claim
	form       form
}

// form packs what a reference states besides its claim: apiVersion and flags.
type form uint32

func newForm(v versionID, controller, blocking Flag) form {
	return form(v)<<4 | form(controller&3)<<2 | form(blocking&3)
}

func (f form) version() versionID { return versionID(f >> 4) }
func (f form) controller() Flag   { return Flag(f >> 2 & 3) }
func (f form) blocking() Flag     { return Flag(f & 3) }

// statement is what a reference states about its owner: a claim, whether the graph keeps it or not.
type statement struct {
	owner     entryID
	kind      kindID
	namespace spaceID
	name      nameID // of a claim that is kept
	text      string // the name in any other claim
}

func (c *claim) statement() statement {
	return statement{owner: c.owner, kind: c.kind, namespace: c.namespace, name: c.name}
}

// claimKey identifies a claim. The answers of live reads are keyed by it too.
type claimKey struct {
	owner     entryID
	kind      kindID
	namespace spaceID
	name      string
}

func (g *Graph) keyOf(c *claim) claimKey {
	return claimKey{c.owner, c.kind, c.namespace, g.names.text(c.name)}
}

// find returns the entry of a UID, zero if it does not exist.
func (g *Graph) find(uid UID) entryID {
	if key, ok := parseUUID(uid); ok {
		return g.byUUID.find(&key, &g.entries)
	}
	return g.byOddUID[uid]
}

// entryOf returns the entry of a UID; it adds a presumed one if necessary.
func (g *Graph) entryOf(uid UID) entryID {
	if i := g.find(uid); i != 0 {
		return i
	}
	i := g.entries.add()
	e := g.entries.at(i)
	e.state = presumed
	if key, ok := parseUUID(uid); ok {
		e.uid = key
		g.byUUID.add(&key, i)
		return i
	}
	uid = UID(strings.Clone(string(uid)))
	e.marks = oddUID
	g.oddUIDs[i] = uid
	g.byOddUID[uid] = i
	return i
}

// drop removes an entry that is not observed and has no claimants, so that the claims of observed
// objects bound the entries of absent objects.
func (g *Graph) drop(i entryID) {
	e := g.entries.at(i)
	if e.marks&oddUID != 0 {
		delete(g.byOddUID, g.oddUIDs[i])
		delete(g.oddUIDs, i)
	} else {
		g.byUUID.remove(&e.uid, i)
	}
	delete(g.times, i)
	g.forgetCoordinates(i)
	g.setVersion(i, "")
	g.entries.remove(i)
}

// forgetCoordinates clears the kind, namespace and name of an entry.
func (g *Graph) forgetCoordinates(i entryID) {
	e := g.entries.at(i)
	g.releaseKind(e.kind)
	g.namespaces.release(e.namespace)
	e.kind, e.namespace = 0, 0
	g.setName(i, 0)
}

// setName replaces the name of an entry by one that was acquired for it.
func (g *Graph) setName(i entryID, name nameID) {
	e := g.entries.at(i)
	g.names.release(e.name)
	e.name = name
}

func (g *Graph) uidOf(i entryID) UID {
	e := g.entries.at(i)
	if e.marks&oddUID != 0 {
		return g.oddUIDs[i]
	}
	return formatUUID(e.uid)
}

// hasUID reports whether the entry has that UID. It allocates nothing.
func (g *Graph) hasUID(i entryID, uid UID) bool {
	e := g.entries.at(i)
	if e.marks&oddUID != 0 {
		return g.oddUIDs[i] == uid
	}
	key, ok := parseUUID(uid)
	return ok && key == e.uid
}

const (
	hexDigits  = "0123456789abcdef"
	uuidLength = 36
)

func isHyphen(position int) bool {
	return position == 8 || position == 13 || position == 18 || position == 23
}

// parseUUID packs a UUID in its canonical form (lower case, with hyphens). Any other text is a
// valid UID too, but is kept as text.
//
// It works on eight digits at a time because every observation goes through it.
func parseUUID(uid UID) (key [16]byte, ok bool) {
	if len(uid) != uuidLength || uid[8] != '-' || uid[13] != '-' || uid[18] != '-' || uid[23] != '-' {
		return key, false
	}
	a, okA := parseDigits(load4(uid[0:4]) | load4(uid[4:8])<<32)
	b, okB := parseDigits(load4(uid[9:13]) | load4(uid[14:18])<<32)
	c, okC := parseDigits(load4(uid[19:23]) | load4(uid[24:28])<<32)
	d, okD := parseDigits(load4(uid[28:32]) | load4(uid[32:36])<<32)
	for n, four := range [4]uint32{a, b, c, d} {
		key[4*n], key[4*n+1], key[4*n+2], key[4*n+3] = byte(four), byte(four>>8), byte(four>>16), byte(four>>24)
	}
	return key, okA && okB && okC && okD
}

// load4 returns four characters, the first in the lowest byte.
func load4(s UID) uint64 {
	_ = s[3]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24
}

// everyByte has a one in each byte; multiplied by n, it has n in each.
const everyByte = 0x0101010101010101

// parseDigits packs eight hexadecimal digits, one in each byte, the first in the lowest,
// into four bytes.
func parseDigits(text uint64) (packed uint32, ok bool) {
	isLetter := text >> 6 & everyByte
	values := text&(0x0f*everyByte) + 9*isLetter
	// A character that is not a digit does not come out again when the values are written as
	// digits.
	aboveNine := (values + 6*everyByte) >> 4 & everyByte
	ok = values&(0xf0*everyByte) == 0 && values+'0'*everyByte+('a'-10-'0')*aboveNine == text
	pairs := (values<<4 | values>>8) & 0x00ff00ff00ff00ff
	pairs = (pairs | pairs>>8) & 0x0000ffff0000ffff
	return uint32(pairs | pairs>>16), ok
}

func formatUUID(key [16]byte) UID {
	var text [uuidLength]byte
	digits := 0
	for n := range text {
		if isHyphen(n) {
			text[n] = '-'
			continue
		}
		text[n] = hexDigits[key[digits/2]>>(4*(1-digits%2))&0xf]
		digits++
	}
	return UID(text[:])
}

// safeDigits is the number of decimal digits that always fit into 64 bits.
const safeDigits = 19

// number parses a resourceVersion as a number, if it is one.
func number(version string) (n uint64, ok bool) {
	for i := range len(version) {
		c := version[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		digit := uint64(c - '0')
		if i >= safeDigits && n > (^uint64(0)-digit)/10 {
			return 0, false
		}
		n = n*10 + digit
	}
	return n, version != ""
}

// setVersion records a resourceVersion.
func (g *Graph) setVersion(i entryID, version string) {
	e := g.entries.at(i)
	if e.version == (revision{}) {
		delete(g.oddVersions, i)
	}
	n, ok := number(version)
	if ok && version[0] != '0' {
		e.version = newRevision(n)
		return
	}
	e.version = revision{}
	if version != "" {
		g.oddVersions[i] = strings.Clone(version)
	}
}

// recordedVersion returns the version of an entry as a number, if it is one.
func (g *Graph) recordedVersion(i entryID) (n uint64, ok bool) {
	if e := g.entries.at(i); e.version != (revision{}) {
		return e.version.number(), true
	}
	return number(g.oddVersions[i])
}

// isOlder reports whether a version is certainly older than the recorded one: both are numbers of
// the same epoch. Any other pair cannot be compared.
func (g *Graph) isOlder(i entryID, version string) bool {
	recorded, ok := g.recordedVersion(i)
	n, numeric := number(version)
	return ok && numeric && n < recorded && g.entries.at(i).marks&stale == 0
}

// isNews reports whether a version is neither the recorded one nor certainly older.
func (g *Graph) isNews(i entryID, version string) bool {
	e := g.entries.at(i)
	n, ok := number(version)
	if ok && e.version != (revision{}) {
		return n > e.version.number() || e.marks&stale != 0
	}
	return !g.isOlder(i, version) && !g.isRecorded(i, version)
}

// isRecorded reports whether a version is the recorded one.
func (g *Graph) isRecorded(i entryID, version string) bool {
	if g.entries.at(i).marks&stale != 0 {
		return false
	}
	recorded, ok := g.recordedVersion(i)
	n, numeric := number(version)
	if ok && numeric {
		return n == recorded
	}
	return version != "" && version == g.oddVersions[i]
}

// claimsOn yields the claims on an entry.
func (g *Graph) claimsOn(i entryID) iter.Seq2[claimID, *claim] {
	return func(yield func(claimID, *claim) bool) {
		for id := g.entries.at(i).claims; id != 0; {
			c := g.claims.at(id)
			next := c.next
			if !yield(id, c) {
				return
			}
			id = next
		}
	}
}

// claimants yields the references that state a claim, blocking ones first.
func (g *Graph) claimants(c *claim) iter.Seq[*reference] {
	return func(yield func(*reference) bool) {
		for id := c.first; id != 0; {
			r := g.references.at(id)
			if !yield(r) || r.next == c.first {
				return
			}
			id = r.next
		}
	}
}

// referencesOf yields the owner references of an observed object, in order.
func (g *Graph) referencesOf(i entryID) iter.Seq[*reference] {
	return func(yield func(*reference) bool) {
		for id := g.entries.at(i).references; id != 0; {
			r := g.references.at(id)
			if !yield(r) {
				return
			}
			id = r.sibling
		}
	}
}

func (g *Graph) countReferences(i entryID) int {
	n := 0
	for id := g.entries.at(i).references; id != 0; id = g.references.at(id).sibling {
		n++
	}
	return n
}
