package cri

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// An image that was pulled with credentials is on the node, where any pod could name it. As with a kubelet, a pod may use
// it without a pull only if it has those credentials:
//
//	the image was pulled by the agent  ──▶ anonymously: every pod, by the name of the pull
//	                                   ──▶ with a pull secret: pods that refer to it, or whose secrets have the same credentials
//	the image was there before         ──▶ every pod, also after a pull has brought the same one, or given it a name
//
// Other pods pull it, so that the registry decides. imagerecords.go stores who may use an image.

const (
	// mostUses is the maximum number of pull secrets that are kept for one name of an image. The namespace with most of them
	// loses its oldest one.
	mostUses = 100
	// mostNames is the maximum number of names that are kept for an image, besides those in the specs of pods on the node. The
	// namespace with most of them loses the least recently used one: pods that use it pull the image again. A tenant can pull
	// an image that others use under many names of his own.
	mostNames = 100
	// mostNamesInUse is the maximum number of names in the specs of the pods of a namespace that are kept for that reason, the
	// most recently used ones. Each pull reads and writes the whole record of its image, and a pod may have thousands of init
	// containers, each of which names the image differently.
	mostNamesInUse = 200
)

// secretUse is a pull secret with which an image was pulled. It has no credential, only a hash.
type secretUse struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
	Hash      string    `json:"hash"`
}

// isSame reports whether two are the same secret, whose credentials may have changed, or have the same credentials.
func (u secretUse) isSame(other secretUse) bool {
	sameSecret := u.UID != "" && u.UID == other.UID && u.Namespace == other.Namespace && u.Name == other.Name
	return sameSecret || u.Hash != "" && u.Hash == other.Hash
}

// hashOf returns the hash of a credential. The key keeps hashes of two agents apart.
func hashOf(key string, a *runtimeapi.AuthConfig) string {
	h := hmac.New(sha256.New, []byte(key))
	for _, part := range []string{a.GetUsername(), a.GetPassword()} {
		sum := sha256.Sum256([]byte(part)) // of a constant length, so that the parts cannot be shifted
		_, _ = h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// imageAccess says which pods may use an image by one name. The zero value allows none.
type imageAccess struct {
	Everybody bool        `json:"everybody,omitempty"` // it was pulled anonymously
	Secrets   []secretUse `json:"secrets,omitempty"`
}

// allows reports whether a pod with these credentials may use the image.
func (a imageAccess) allows(uses []secretUse) bool {
	return a.Everybody || slices.ContainsFunc(uses, func(u secretUse) bool { return slices.ContainsFunc(a.Secrets, u.isSame) })
}

// with returns the access after another pull.
func (a imageAccess) with(other imageAccess) imageAccess {
	all := imageAccess{Everybody: a.Everybody || other.Everybody}
	if all.Everybody {
		return all // the secrets are of no use
	}
	all.Secrets = slices.DeleteFunc(slices.Clone(a.Secrets), func(u secretUse) bool { return slices.Contains(other.Secrets, u) })
	all.Secrets = append(all.Secrets, other.Secrets...)
	for len(all.Secrets) > mostUses {
		oldest := oldestOfMost(all.Secrets)
		all.Secrets = slices.Delete(all.Secrets, oldest, oldest+1)
	}
	return all
}

// oldestOfMost returns the index of the first secret of the namespace that has most of them.
func oldestOfMost(uses []secretUse) int {
	counts := map[string]int{}
	for _, u := range uses {
		counts[u.Namespace]++
	}
	most := slices.Max(slices.Collect(maps.Values(counts)))
	return slices.IndexFunc(uses, func(u secretUse) bool { return counts[u.Namespace] == most })
}

// pulledImage is the record of an image that the agent has pulled.
type pulledImage struct {
	ID string `json:"id"`
	// Names has the access by the names of its repositories. A name that is missing allows no pod.
	Names map[string]namedAccess `json:"names,omitempty"`
}

// namedAccess says which pods may use an image by one name.
type namedAccess struct {
	imageAccess

	// Namespace is that of the pod that pulled the image by the name first.
	Namespace string `json:"namespace,omitempty"`
	// Used is larger than that of the names that were used before.
	Used uint64 `json:"used,omitempty"`
}

// namedPull is the pull of an image by a name, for a pod of a namespace.
type namedPull struct {
	image, namespace string
	access           imageAccess // the pods that may use the image by that name then
}

// usedNames has the names of repositories that are in the specs of pods on the node, with the namespaces of these pods.
type usedNames map[string]map[string]struct{}

// add adds a name in the spec of a pod of a namespace.
func (u usedNames) add(name, namespace string) {
	if u[name] == nil {
		u[name] = map[string]struct{}{}
	}
	u[name][namespace] = struct{}{}
}

// add adds the access of a pull. inUse has the names that are in the specs of pods on the node.
func (p *pulledImage) add(by namedPull, inUse usedNames) {
	if !by.access.Everybody && len(by.access.Secrets) == 0 {
		return // it is that of a name that is missing
	}
	name := repositoryName(by.image)
	if p.Names == nil {
		p.Names = map[string]namedAccess{}
	}
	known, isKnown := p.Names[name]
	if !isKnown {
		known.Namespace = by.namespace
		p.makeRoom(name, inUse)
	}
	p.Names[name] = namedAccess{known.with(by.access), known.Namespace, p.lastUse() + 1}
}

// makeRoom drops names until there is room for another one, or all others are in use.
func (p *pulledImage) makeRoom(next string, inUse usedNames) {
	excess := len(p.Names) + 1 - mostNames
	if excess <= 0 {
		return
	}
	spare := p.spareNames(next, inUse)
	for _, name := range spare[:min(excess, len(spare))] {
		delete(p.Names, name)
	}
}

// spareNames returns the names that may be dropped for the next one, in this order: the namespace with most names loses its
// least recently used one, again and again. It sorts once: thousands of names are to be dropped when a pod is gone.
func (p *pulledImage) spareNames(next string, inUse usedNames) []string {
	left := map[string]int{} // the number of names, by namespace
	for _, access := range p.Names {
		left[access.Namespace]++
	}
	spare := p.exceptInUse(next, inUse)
	before := map[string]int{} // the number of names that the namespace of a name has before it loses that one
	for _, name := range spare {
		namespace := p.Names[name].Namespace
		before[name] = left[namespace]
		left[namespace]--
	}
	slices.SortStableFunc(spare, func(a, b string) int { return cmp.Compare(before[b], before[a]) })
	return spare
}

// exceptInUse returns the names besides those that are kept because they are in use, the least recently used one first. Each
// namespace keeps the names that its own pods use: it cannot displace those that others use, whoever pulled them first.
func (p *pulledImage) exceptInUse(next string, inUse usedNames) []string {
	kept := map[string]int{} // the number of names, by namespace
	for namespace := range inUse[next] {
		kept[namespace] = 1
	}
	names := slices.SortedFunc(maps.Keys(p.Names), func(a, b string) int {
		return cmp.Or(cmp.Compare(p.Names[a].Used, p.Names[b].Used), cmp.Compare(a, b))
	})
	var spare []string
	for _, name := range slices.Backward(names) {
		isKept := false
		for namespace := range inUse[name] {
			if kept[namespace] < mostNamesInUse {
				kept[namespace]++
				isKept = true
			}
		}
		if !isKept {
			spare = append(spare, name)
		}
	}
	slices.Reverse(spare)
	return spare
}

// use notes that a pod uses the image by a name, and reports whether that changes the record. It does not if the name stays
// for long anyway: each change costs a write.
func (p *pulledImage) use(image string) (changed bool) {
	name := repositoryName(image)
	known, isKnown := p.Names[name]
	later := 0
	for _, other := range p.Names {
		if other.Used > known.Used {
			later++
		}
	}
	if !isKnown || later < mostNames/2 {
		return false
	}
	known.Used = p.lastUse() + 1
	p.Names[name] = known
	return true
}

// lastUse returns the largest Used of all names.
func (p *pulledImage) lastUse() uint64 {
	var last uint64
	for _, access := range p.Names {
		last = max(last, access.Used)
	}
	return last
}
