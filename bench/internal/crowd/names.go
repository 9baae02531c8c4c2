package crowd

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// alphabet is the one of generated names in Kubernetes.
const alphabet = "bcdfghjklmnpqrstvwxz2456789"

const (
	// nameDigits is the length of the number in the name of an object without owners.
	nameDigits = 8
	hashLength = 10
	randLength = 5
	uidLength  = 36
)

// The seeds of the halves of UIDs, and of the letters in names.
const (
	seedHigh  = 0x6c62272e07bb0142
	seedLow   = 0x27d4eb2f165667c5
	seedNames = 0x94d049bb133111eb
)

// mix is the finalizer of splitmix64, which is a bijection.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// UID returns the UID of an object.
func UID(n Number) types.UID { return types.UID(appendUID(nil, n)) }

// appendUID appends a UUID of version 4.
func appendUID(to []byte, n Number) []byte {
	high, low := mix(uint64(n)^seedHigh), mix(uint64(n)^seedLow)
	high = high&^0xf000 | 0x4000
	low = low&^(3<<62) | 2<<62
	to = appendHex(to, high>>32, 8)
	to = append(to, '-')
	to = appendHex(to, high>>16, 4)
	to = append(to, '-')
	to = appendHex(to, high, 4)
	to = append(to, '-')
	to = appendHex(to, low>>48, 4)
	to = append(to, '-')
	return appendHex(to, low, 12)
}

// appendHex appends the last digits of a number.
func appendHex(to []byte, x uint64, digits int) []byte {
	for digits--; digits >= 0; digits-- {
		to = append(to, "0123456789abcdef"[x>>(4*digits)&15])
	}
	return to
}

// appendNumber appends the digits of a name, zeros first, so that names are in the order of numbers.
func appendNumber(to []byte, i int) []byte {
	at := len(to) + nameDigits
	to = append(to, "00000000"...)
	for ; i > 0; i /= 10 {
		at--
		to[at] = byte('0' + i%10)
	}
	return to
}

// appendName appends the name of the object at place i. The name of a dependent begins with its owner's.
func (p *Population) appendName(to []byte, c *cohort, i int) []byte {
	if c.owner == nil {
		if c.kind.Resource == "namespaces" {
			return append(to, p.namespaces[i]...)
		}
		to = append(to, c.word...)
		to = append(to, '-')
		return appendNumber(to, i)
	}
	return c.appendSuffix(p.appendName(to, c.owner, c.ownerOf(i)), i)
}

// appendSuffix appends what the name of a dependent has and its owner's has not.
func (c *cohort) appendSuffix(to []byte, i int) []byte {
	first, _ := c.dependentsOf(c.ownerOf(i))
	sibling := i - first
	switch c.suffix {
	case hash:
		return appendLetters(to, c.first+Number(i), hashLength, sibling)
	case generated:
		return appendLetters(to, c.first+Number(i), randLength, sibling)
	case ordinal:
		return strconv.AppendInt(append(to, '-'), int64(sibling), 10)
	case minutes:
		const lastYear = 29_300_000
		return strconv.AppendInt(append(to, '-'), lastYear+int64(sibling)*24*60, 10)
	case sameName:
	}
	return to
}

// appendLetters appends letters that look random; the last one distinguishes siblings.
func appendLetters(to []byte, n Number, length, sibling int) []byte {
	to = append(to, '-')
	x := mix(uint64(n) ^ seedNames)
	for range length - 1 {
		to = append(to, alphabet[x%uint64(len(alphabet))])
		x /= uint64(len(alphabet))
	}
	return append(to, alphabet[sibling])
}

// placeOf returns the place of the object without owners with whose name a name begins.
func (c *cohort) placeOf(p *Population, name string) (int, bool) {
	if c.kind.Resource == "namespaces" {
		i := slices.Index(p.namespaces, name)
		return i, i >= 0
	}
	rest, ok := strings.CutPrefix(name, c.word+"-")
	if !ok || len(rest) < nameDigits {
		return 0, false
	}
	i, err := strconv.Atoi(rest[:nameDigits])
	return i, err == nil && i >= 0 && i < c.count
}
