package queue

import (
	"strings"

	"github.com/google/uuid"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// key is a UID in the form in which it waits: a third of the bytes, which counts while the million dependents of one
// owner wait. A UUID in its canonical form is its 16 bytes; any other text is longer, because it follows otherText.
type key string

// otherText begins keys that are not UUIDs. It is longer than a UUID.
const otherText = "not a UUID, but: "

func keyOf(uid ownership.UID) key {
	if id, err := uuid.Parse(string(uid)); err == nil && id.String() == string(uid) {
		return key(id[:])
	}
	return key(otherText + string(uid))
}

func (k key) uid() ownership.UID {
	if id, err := uuid.FromBytes([]byte(k)); err == nil {
		return ownership.UID(id.String())
	}
	return ownership.UID(strings.TrimPrefix(string(k), otherText))
}
