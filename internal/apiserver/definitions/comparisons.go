package definitions

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// mostComparisons bounds the comparisons of mistakes in the validation of an object, which takes tenths of a second
	// then. An object with comparedInList mistakes in a list of its spec needs as many: they are compared once for the
	// list, once for the spec, and once for the object.
	mostComparisons = 3 * comparedInList * comparedInList / 2
	// comparedInList is the number of mistakes in a list that an error for users names.
	comparedInList = 2000
)

// comparisons bounds how often the validation of an object compares two mistakes. kube-openapi compares each mistake of an
// item with all mistakes of the items before it, and does so again for each level above. That includes mistakes that are
// ignored in the end.
type comparisons struct {
	left int
	path string // of the value for which there were too many
}

// add counts the comparisons of the mistakes of an item with each other, and with the mistakes of the items before it. The
// path is that of the list, the map or the object.
func (c *comparisons) add(mistakes, before int, path string) {
	if c.areTooMany() {
		return
	}
	c.left -= mistakes*before + mistakes*mistakes/2
	c.path = path
}

// areTooMany reports whether the validation must stop. It returns no further mistakes then, and its result is incomplete.
func (c *comparisons) areTooMany() bool { return c.left < 0 }

// mistake returns the error about an object with too many mistakes to compare.
func (c *comparisons) mistake() *field.Error {
	const detail = "too many of its values do not match the schema of this version, or one of the alternatives there (anyOf, oneOf, not), " +
		"although they may be accepted as unchanged, or by another alternative: the server compares about %d of them; " +
		"correct values, or divide them among several objects"
	e := field.Invalid(nil, field.OmitValueType{}, fmt.Sprintf(detail, comparedInList))
	if c.path != "" {
		e.Field = c.path
	}
	return e
}
