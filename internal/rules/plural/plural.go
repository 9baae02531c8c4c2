// Package plural writes numbers of things for people. It is pure.
package plural

import "strconv"

// Count returns, for example, "1 object" or "2 objects".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// Are returns, for example, "1 object is" or "2 objects are".
func Are(n int, noun string) string {
	if n == 1 {
		return Count(n, noun) + " is"
	}
	return Count(n, noun) + " are"
}
