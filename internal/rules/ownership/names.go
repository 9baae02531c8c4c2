package ownership

// Names are the largest part of the text in a graph. They are kept in records without pointers, and most of them only
// in part: a dependent is usually named after its owner. Of "web-5d4f8b9c7d-x2k9q", the record has "-x2k9q" and the ID
// of the owner's name, which is kept anyway.

// nameID identifies a name that is kept. The upper bits are the class of its record, the lower ones the index; zero is
// the empty name. Two IDs may stand for the same name.
type nameID uint32

const (
	// classBits leave an index for 67 million names of each class. If there are more, the next class takes them.
	classBits = 6
	indexBits = 32 - classBits
	classes   = 1 << classBits
	// cell is the difference between the sizes of two classes, in bytes. Records of class n take n cells; class zero is
	// that of the names that are too long for a record.
	cell = 4

	// A record begins with a byte that holds the number of uses and the flag derived, and the length of its own text. A
	// derived name has the ID of its base then, which is not derived. Its own text follows.
	headSize    = 2
	baseSize    = 4
	derived     = 1
	oneUse      = 2
	mostUses    = 255 / oneUse
	longestName = (classes-1)*cell - headSize // in a record
)

// names keeps names and counts their uses: an owner and the claims on it share one name, and so do the names that are
// derived from it.
type names struct {
	records [classes]records // by class
	long    map[nameID]longName
}

type longName struct {
	text string
	uses int
}

func newNames() names {
	n := names{long: make(map[nameID]longName)}
	for class := range n.records {
		n.records[class] = records{indices: indices[nameID]{bits: recordBits}, size: class * cell}
	}
	return n
}

func (id nameID) class() nameID  { return id >> indexBits }
func (id nameID) index() nameID  { return id & (1<<indexBits - 1) }
func (id nameID) isInCell() bool { return id.class() != 0 }

// add keeps a name, with one use.
func (n *names) add(text string) nameID {
	switch {
	case text == "":
		return 0
	case len(text) > longestName:
		id := n.records[0].take()
		n.long[id] = longName{text: string([]byte(text)), uses: 1} // not the text that it is a part of
		return id
	default:
		return n.put(0, text)
	}
}

// derive keeps the name of a dependent, with one use, in short if the owner's name is the beginning of it. Like share,
// it may replace the owner's ID.
func (n *names) derive(text string, owner *nameID) nameID {
	length := n.length(*owner)
	if len(text) > longestName || length <= baseSize || length > len(text) || !n.equal(*owner, text[:length]) {
		return n.add(text)
	}
	if length == len(text) {
		return n.share(owner)
	}
	if n.record(*owner)[0]&derived != 0 {
		n.copy(owner)
	}
	return n.put(n.share(owner), text[length:])
}

// put adds a record; a base has been acquired for it.
func (n *names) put(base nameID, text string) nameID {
	size := headSize + len(text)
	if base != 0 {
		size += baseSize
	}
	class := (size + cell - 1) / cell
	for class < classes-1 && n.records[class].isFull() {
		class++
	}
	index := n.records[class].add()
	r := n.records[class].at(index)
	r[0], r[1] = oneUse, byte(len(text))
	if base != 0 {
		r[0] |= derived
		r[2], r[3], r[4], r[5] = byte(base), byte(base>>8), byte(base>>16), byte(base>>24)
	}
	copy(r[size-len(text):], text)
	return nameID(class)<<indexBits | index
}

// share adds a use to a name and returns its ID. A name that has no room for a further use is copied first; at holds
// the ID of the copy then.
func (n *names) share(at *nameID) nameID {
	if !at.isInCell() {
		if long, ok := n.long[*at]; ok {
			long.uses++
			n.long[*at] = long
		}
		return *at
	}
	if n.uses(*at) == mostUses {
		n.copy(at)
	}
	n.record(*at)[0] += oneUse
	return *at
}

// copy replaces a use of a name by the use of a copy in a record of its own, without a base.
func (n *names) copy(at *nameID) {
	fresh := n.add(n.text(*at))
	n.release(*at)
	*at = fresh
}

// release removes a use; a name without uses is dropped, and its base loses a use.
func (n *names) release(id nameID) {
	for id.isInCell() {
		if r := n.record(id); r[0] >= 2*oneUse {
			r[0] -= oneUse
			return
		}
		base, _ := n.parts(id)
		n.records[id.class()].remove(id.index())
		id = base
	}
	long, ok := n.long[id]
	switch {
	case !ok: // empty, or a name without base was dropped
	case long.uses > 1:
		long.uses--
		n.long[id] = long
	default:
		delete(n.long, id)
		n.records[0].give(id)
	}
}

func (n *names) record(id nameID) []byte { return n.records[id.class()].at(id.index()) }

func (n *names) uses(id nameID) int {
	if !id.isInCell() {
		return n.long[id].uses
	}
	return int(n.record(id)[0] / oneUse)
}

// baseOf returns the base of a name, zero if it has none, or if there is no record with that ID.
func (n *names) baseOf(id nameID) nameID {
	if !id.isInCell() || n.records[id.class()].chunks[id.index()>>recordBits] == nil {
		return 0
	}
	base, _ := n.parts(id)
	return base
}

// parts returns the base of a name in a record, zero if it has none, and its own text, which follows that of the base.
func (n *names) parts(id nameID) (base nameID, text []byte) {
	r := n.record(id)
	length := int(r[1])
	if r[0]&derived == 0 {
		return 0, r[headSize : headSize+length]
	}
	base = nameID(r[2]) | nameID(r[3])<<8 | nameID(r[4])<<16 | nameID(r[5])<<24
	return base, r[headSize+baseSize : headSize+baseSize+length]
}

// length returns the length of a name.
func (n *names) length(id nameID) int {
	if !id.isInCell() {
		return len(n.long[id].text)
	}
	base, end := n.parts(id)
	if base == 0 {
		return len(end)
	}
	return int(n.record(base)[1]) + len(end)
}

// equal reports whether a name is that text. It allocates nothing.
func (n *names) equal(id nameID, text string) bool {
	if !id.isInCell() {
		return n.long[id].text == text
	}
	base, end := n.parts(id)
	rest := len(text) - len(end)
	if rest < 0 || text[rest:] != string(end) {
		return false
	}
	if base == 0 {
		return rest == 0
	}
	_, begin := n.parts(base)
	return text[:rest] == string(begin)
}

// same reports whether two IDs stand for the same name. It allocates nothing.
func (n *names) same(a, b nameID) bool {
	if a == b || !a.isInCell() || !b.isInCell() {
		return a == b || n.long[a].text == n.long[b].text && !a.isInCell() && !b.isInCell()
	}
	var roomOfA, roomOfB [longestName]byte
	return string(n.read(a, &roomOfA)) == string(n.read(b, &roomOfB))
}

// text returns a name as a new string.
func (n *names) text(id nameID) string {
	if !id.isInCell() {
		return n.long[id].text
	}
	var room [longestName]byte
	return string(n.read(id, &room))
}

// read returns the text of a name in a record, in the room for it.
func (n *names) read(id nameID, room *[longestName]byte) []byte {
	length := 0
	base, end := n.parts(id)
	if base != 0 {
		_, begin := n.parts(base)
		length = copy(room[:], begin)
	}
	length += copy(room[length:], end)
	return room[:length]
}

// recordBits make chunks of 256 records: small graphs have names of many lengths, and a chunk for each.
const (
	recordBits = 8
	recordsPer = 1 << recordBits
)

// records holds records of one size, as slab does, in chunks without pointers.
type records struct {
	indices[nameID]

	size   int // of a record, in bytes
	chunks [][]byte
	spare  []byte // an empty chunk, or nil
}

func (s *records) isFull() bool { return len(s.free) == 0 && s.used == 1<<indexBits-1 }

func (s *records) at(index nameID) []byte {
	from := int(index&(recordsPer-1)) * s.size
	return s.chunks[index>>recordBits][from : from+s.size : from+s.size]
}

// add returns the index of a new record, which is zero.
func (s *records) add() nameID {
	index := s.take()
	chunk := int(index >> recordBits)
	if chunk == len(s.chunks) {
		s.chunks = append(s.chunks, nil)
	}
	if s.chunks[chunk] == nil {
		s.chunks[chunk], s.spare = s.spare, nil
	}
	if s.chunks[chunk] == nil {
		s.chunks[chunk] = make([]byte, recordsPer*s.size)
	}
	return index
}

// remove zeroes the record and keeps its index for the next one.
func (s *records) remove(index nameID) {
	clear(s.at(index))
	if s.give(index) {
		chunk := index >> recordBits
		s.chunks[chunk], s.spare = nil, s.chunks[chunk]
	}
}
