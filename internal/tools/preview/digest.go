package preview

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// digest returns a digest of the outcomes, with the versions of the objects. It does not include the steps.
func digest(outcomes []Outcome) string {
	sorted := make([]*Outcome, len(outcomes))
	for n := range outcomes {
		sorted[n] = &outcomes[n]
	}
	slices.SortFunc(sorted, func(a, b *Outcome) int { return cmp.Compare(a.Object.UID, b.Object.UID) })
	sum := sha256.New()
	var line []byte
	for _, o := range sorted {
		line = o.appendDigested(line[:0])
		sum.Write(line)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// appendDigested appends the input of the digest. Quotes separate the parts, so that different inputs never read the
// same.
func (o *Outcome) appendDigested(text []byte) []byte {
	for _, word := range []string{string(o.Object.UID), o.Object.ResourceVersion, string(o.Fate)} {
		text = append(strconv.AppendQuote(text, word), ' ')
	}
	text = append(strconv.AppendBool(text, o.Race), ' ')
	text = append(strconv.AppendBool(text, o.Requested), ' ')
	text = append(strconv.AppendQuote(text, o.Refused), ' ')
	text = appendQuoted(text, o.Finalizers)
	for _, r := range o.Owners {
		text = append(strconv.AppendQuote(append(text, ' '), string(r.UID)), ' ')
		text = strconv.AppendUint(text, uint64(r.BlockOwnerDeletion), 10)
	}
	text = append(appendQuoted(append(text, " by "...), o.KeptBy), '\n')
	if o.Protected != "" {
		text = append(strconv.AppendQuote(append(text, "protected "...), o.Protected), '\n')
	}
	if o.Refusal != nil {
		text = append(strconv.AppendQuote(append(text, "refused "...), o.Refusal.String()), '\n')
	}
	if len(o.Deciders) > 0 {
		text = append(appendQuoted(append(text, "decided by "...), o.Deciders), '\n')
	}
	return text
}

func appendQuoted[S ~string](text []byte, words []S) []byte {
	text = append(text, '[')
	for n, word := range words {
		if n > 0 {
			text = append(text, ' ')
		}
		text = strconv.AppendQuote(text, string(word))
	}
	return append(text, ']')
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
