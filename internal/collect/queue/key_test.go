package queue

import (
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Any two UIDs have different keys, from which they come back, even those that only look like UUIDs, or like keys.
func TestKeysAreTheUIDs(t *testing.T) {
	const canonical = "6fa459ea-ee8a-3ca4-894e-db77e160355e"
	packed := keyOf(canonical)
	if len(packed) != 16 {
		t.Errorf("the key of a UUID has %d bytes", len(packed))
	}
	seen := map[key]ownership.UID{}
	for _, uid := range []ownership.UID{
		canonical, ownership.UID(strings.ToUpper(canonical)), "{" + canonical + "}", "urn:uuid:" + canonical, "6fa459eaee8a3ca4894edb77e160355e",
		ownership.UID(packed), "", "a", otherText, otherText + "a", "sixteen bytes...", "\x00",
	} {
		k := keyOf(uid)
		if got := k.uid(); got != uid {
			t.Errorf("%q has become %q", uid, got)
		}
		if other, ok := seen[k]; ok {
			t.Errorf("%q and %q have the same key", uid, other)
		}
		seen[k] = uid
	}
}
