package cri

import (
	"path"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// crio is the name of a runtime that looks for a name without a registry, such as app:1, in the registries of its
// configuration, which may also have an alias for it.
const crio = "cri-o"

// repositoryName returns the full name of an image without tag and digest.
func repositoryName(image string) string {
	host, below := repositoryOf(image)
	return host + "/" + below
}

// cutTag returns the name of the repository of a full reference, and reports whether the reference has a tag.
func cutTag(reference string) (name string, isTagged bool) {
	if strings.Contains(reference, "@") {
		return "", false
	}
	return reference[:strings.LastIndexByte(reference, ':')], true
}

// fullReference returns the full name of an image with its digest or, if it names none, its tag.
func fullReference(image string) string {
	name, digest, hasDigest := strings.Cut(image, "@")
	if hasDigest {
		return repositoryName(name) + "@" + digest
	}
	tag := "latest"
	if slash := strings.LastIndexByte(name, '/'); strings.Contains(name[slash+1:], ":") {
		tag = name[slash+2+strings.IndexByte(name[slash+1:], ':'):]
	}
	return repositoryName(name) + ":" + tag
}

// awaited are the names that pulls may give to an image.
type awaited struct {
	references   map[string]struct{} // full ones, and the last part of one that the runtime resolves
	repositories map[string]struct{} // of references with a tag
}

// awaitedLocked returns the names that the chosen pulls may give to an image.
func (r *imageRecords) awaitedLocked(choose func(reference string, in *intent) bool) awaited {
	a := awaited{map[string]struct{}{}, map[string]struct{}{}}
	for reference, in := range r.intents {
		if !choose(reference, in) {
			continue
		}
		a.add(reference)
		if host, _ := repositoryOf(reference); r.resolvesNames && host == defaultRegistry {
			a.add(path.Base(reference))
		}
	}
	return a
}

func anyIntent(string, *intent) bool { return true }

func (a awaited) add(reference string) {
	a.references[reference] = struct{}{}
	if name, isTagged := cutTag(reference); isTagged {
		a.repositories[name] = struct{}{}
	}
}

// has reports whether a pull may have given a reference to an image.
func (a awaited) has(reference string) bool { return hasNameOrBase(a.references, reference) }

func hasNameOrBase(names map[string]struct{}, name string) bool {
	_, isThere := names[name]
	_, isBaseThere := names[path.Base(name)]
	return isThere || isBaseThere
}

// mayHaveBrought reports whether a pull may have brought an image with these names. A tag may move on to another image, and
// leave the digest of its repository. A repository that gives the image another tag has not lost one: somebody else has
// loaded the image by that tag.
func (a awaited) mayHaveBrought(image *runtimeapi.Image) bool {
	tagged := map[string]struct{}{}
	for _, tag := range image.GetRepoTags() {
		if a.has(fullReference(tag)) {
			return true
		}
		tagged[repositoryName(tag)] = struct{}{}
	}
	for _, digest := range image.GetRepoDigests() {
		name := repositoryName(digest)
		_, isTagged := tagged[name]
		if a.has(fullReference(digest)) || !isTagged && hasNameOrBase(a.repositories, name) {
			return true
		}
	}
	return false
}

// mayBring reports whether a pull may have brought an image, or is bringing it. An image without a name may get that of any
// pull, or of a load.
func (a awaited) mayBring(image *runtimeapi.Image) bool {
	return isUnnamed(image) && len(a.references) > 0 || a.mayHaveBrought(image)
}

func isUnnamed(image *runtimeapi.Image) bool {
	return len(image.GetRepoTags()) == 0 && len(image.GetRepoDigests()) == 0
}
