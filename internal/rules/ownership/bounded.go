package ownership

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// Servers accept owner references with a UID of a megabyte, and with any name. The graph keeps observations for as long as the object
// exists, and the collector compares, queues and records them. Therefore they are bounded first.
const (
	// MaxName is the longest name, in bytes. Most names have at most 253.
	MaxName = 1024
	// maxUID is the longest UID, in bytes. UIDs that Kubernetes makes have 36.
	maxUID = 128
	// maxWord is the longest group, version or kind, in bytes.
	maxWord = 253
	// maxFinalizers bounds the bytes of all finalizers of an object together.
	maxFinalizers = 2048
)

// digestPrefix begins a digest. It has no slash, so that it can stand for an API group.
const digestPrefix = "sha256:"

// unnamedKind ends the kind of a reference whose name is too long, or is the name of no object. No such kind is served:
// the object is parked (R7), because nothing can be proven about an owner without its name.
const unnamedKind = "(no valid name)"

// moreFinalizers begins the text that stands for further finalizers. No finalizer has a space.
const moreFinalizers = "… and "

// Bounded returns an observation in which digests replace texts that are too long. Different texts have different
// digests, so identity (R1) and evidence (R3) are as exact as with the texts. It keeps the first finalizers and
// the collector's finalizers. Bounded is idempotent.
func Bounded(o Object) Object {
	o.UID = UID(bounded(string(o.UID), maxUID))
	o.Finalizers = BoundedFinalizers(o.Finalizers)
	if slices.ContainsFunc(o.Owners, func(r Reference) bool { return r != r.Bounded() }) {
		o.Owners = slices.Clone(o.Owners)
		for i := range o.Owners {
			o.Owners[i] = o.Owners[i].Bounded()
		}
	}
	return o
}

// Bounded returns the reference in which digests stand for texts that are too long, and for names that no object has.
func (r Reference) Bounded() Reference {
	isName := IsName(r.Name)
	if isName && len(r.APIVersion)+len(r.Kind)+len(r.Name)+len(r.UID) <= maxUID {
		return r // nearly always
	}
	r.UID = UID(bounded(string(r.UID), maxUID))
	r.Kind = bounded(r.Kind, maxWord)
	if group, version, ok := strings.Cut(r.APIVersion, "/"); ok {
		r.APIVersion = bounded(group, maxWord) + "/" + bounded(version, maxWord)
	} else {
		r.APIVersion = bounded(r.APIVersion, maxWord)
	}
	if !isName || len(r.Name) > MaxName {
		r.Name, r.Kind = digestOf(r.Name), bounded(r.Kind+unnamedKind, maxWord)
	}
	return r
}

// IsName reports whether an object may have this name, or a namespace. Servers do not check the names in owner
// references: in the path of a request, "../../kube-system/secrets/a" or "a:8080/proxy" would be another object, or
// something else altogether.
func IsName(name string) bool { return name != "." && name != ".." && !strings.ContainsAny(name, "/%") }

// IsExact reports whether the reference is certainly the server's, without digests.
func (r Reference) IsExact() bool {
	group, version, _ := strings.Cut(r.APIVersion, "/")
	return !slices.ContainsFunc([]string{group, version, r.Kind, r.Name, string(r.UID)}, isDigest)
}

// IsExact reports whether the UID is certainly the server's, and not a digest.
func (uid UID) IsExact() bool { return !isDigest(string(uid)) }

// bounded returns the text, or a digest of it if it has more than the given number of bytes. The same text always
// has the same digest.
func bounded(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return digestOf(text)
}

func digestOf(text string) string {
	return fmt.Sprintf("%s%x:%d", digestPrefix, sha256.Sum256([]byte(text)), len(text))
}

func isDigest(text string) bool { return strings.HasPrefix(text, digestPrefix) }

// BoundedFinalizers returns the first finalizers, the collector's finalizers, and the number of the others.
func BoundedFinalizers(all []string) []string {
	size, most := 0, maxFinalizers
	for _, f := range all {
		size += len(f)
	}
	if len(all) > 0 && isMore(all[len(all)-1]) {
		most *= 2 // they are bounded already
	}
	if size <= most {
		return all
	}
	n := len(all)
	for ; size > maxFinalizers; n-- {
		size -= len(all[n-1])
	}
	kept := slices.Clone(all[:n])
	for _, own := range []string{FinalizerOrphan, FinalizerForeground} {
		if slices.Contains(all[n:], own) {
			kept = append(kept, own)
		}
	}
	return append(kept, fmt.Sprintf("%s%d more", moreFinalizers, len(all)-len(kept)))
}

// HasMoreFinalizers reports whether an object has more finalizers than are listed.
func HasMoreFinalizers(listed []string) bool { return slices.ContainsFunc(listed, isMore) }

func isMore(finalizer string) bool {
	return len(finalizer) <= maxUID && strings.HasPrefix(finalizer, moreFinalizers)
}

// Excerpt returns the beginning of a text for people to read, of about the given number of bytes, and says how long
// the text is.
func Excerpt(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:most], ""), len(text))
}
