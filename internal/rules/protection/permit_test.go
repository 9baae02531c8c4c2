package protection

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// R32: a permit has all objects of its closure, and no others but by a rare accident.
func TestR32_PermitsHaveTheirObjects(t *testing.T) {
	uids := make([]string, mostPermitted+10)
	for i := range uids {
		uids[i] = fmt.Sprintf("%08x-0000-4000-8000-%012x", i, i)
	}
	permits := NewPermits(uids)
	if len(permits) != 2 || len(NewPermits(nil)) != 0 {
		t.Fatalf("%d permits", len(permits))
	}
	for i, p := range permits {
		again, err := DecodePermit(p.Encode())
		if diff := cmp.Diff(p, again); err != nil || diff != "" {
			t.Fatalf("%d: %v\n%s", i, err, diff)
		}
	}
	for _, uid := range uids {
		if !slices.ContainsFunc(permits, func(p Permit) bool { return p.Has(uid) }) {
			t.Fatalf("%s is not permitted", uid)
		}
	}
	strangers := 0
	for i := range len(uids) {
		if permits[0].Has(fmt.Sprintf("%08x-1111-4000-8000-%012x", i, i)) {
			strangers++
		}
	}
	if strangers > 20 {
		t.Errorf("%d of %d strangers are permitted", strangers, len(uids))
	}
	for _, bad := range [][]byte{{1}, {1, 2, 3, 4, 5}, make([]byte, 4*mostPermitted+4)} {
		if _, err := DecodePermit(bad); err == nil {
			t.Errorf("%d bytes are a permit", len(bad))
		}
	}
}
