package preview

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/ownership"
)

// digest returns a digest of what is said, and about which versions of which objects. The steps are
// not part of it.
func digest(outcomes []Outcome) string {
	sorted := slices.Clone(outcomes)
	slices.SortFunc(sorted, func(a, b Outcome) int { return cmp.Compare(a.Object.UID, b.Object.UID) })
	var text strings.Builder
	for _, o := range sorted {
		// %q keeps apart what would read the same when strung together.
		fmt.Fprintf(&text, "%q %q %q %t %t %q %q", o.Object.UID, o.Object.ResourceVersion, o.Fate, o.Race, o.Requested, o.Refused, o.Finalizers)
		for _, r := range o.Owners {
			fmt.Fprintf(&text, " %q %d", r.UID, r.BlockOwnerDeletion)
		}
		fmt.Fprintf(&text, " by %q\n", o.KeptBy)
		if o.Protected != "" {
			fmt.Fprintf(&text, "protected %q\n", o.Protected)
		}
	}
	sum := sha256.Sum256([]byte(text.String()))
	return hex.EncodeToString(sum[:])
}

// count counts outcomes by fate and kind.
func count(outcomes []Outcome) []Count {
	type key struct {
		fate Fate
		kind ownership.Kind
	}
	counts := map[key]int{}
	for _, o := range outcomes {
		counts[key{o.Fate, o.Object.Kind}]++
	}
	all := make([]Count, 0, len(counts))
	for k, n := range counts {
		all = append(all, Count{Fate: k.fate, Kind: k.kind, Objects: n})
	}
	slices.SortFunc(all, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Fate, b.Fate), cmp.Compare(a.Kind.String(), b.Kind.String()))
	})
	return all
}
