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
	all := make([]ranked[*Outcome], len(outcomes))
	for n := range outcomes {
		all[n] = rank(outcomes[n].Object.UID, &outcomes[n])
	}
	sortByUID(all)
	sum := sha256.New()
	var line []byte
	for _, o := range all {
		line = o.value.appendDigested(line[:0])
		sum.Write(line)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// appendDigested appends the input of the digest. Quotes separate the parts, so that different inputs never read the
// same.
func (o *Outcome) appendDigested(text []byte) []byte {
	for _, word := range []string{string(o.Object.UID), o.Object.ResourceVersion, string(o.Fate)} {
		text = append(appendQuote(text, word), ' ')
	}
	text = append(strconv.AppendBool(text, o.Race), ' ')
	text = append(strconv.AppendBool(text, o.Requested), ' ')
	text = append(appendQuote(text, o.Refused), ' ')
	text = appendQuoted(text, o.Finalizers)
	for _, r := range o.Owners {
		text = append(appendQuote(append(text, ' '), string(r.UID)), ' ')
		text = strconv.AppendUint(text, uint64(r.BlockOwnerDeletion), 10)
	}
	text = append(appendQuoted(append(text, " by "...), o.KeptBy), '\n')
	if o.Protected != "" {
		text = append(appendQuote(append(text, "protected "...), o.Protected), '\n')
	}
	if o.Refusal != nil {
		text = append(appendQuote(append(text, "refused "...), o.Refusal.String()), '\n')
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
		text = appendQuote(text, string(word))
	}
	return append(text, ']')
}

// appendQuote does the same as strconv.AppendQuote. Nearly all texts have only plain characters, for which that looks up
// one by one how to write them.
func appendQuote(text []byte, word string) []byte {
	for n := range len(word) {
		if c := word[n]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return strconv.AppendQuote(text, word)
		}
	}
	return append(append(append(text, '"'), word...), '"')
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
