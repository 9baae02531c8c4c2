package story

import (
	"hash/maphash"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// lag bounds how long after a namespace's removal the removals of its contents may arrive: they come from other
// watches.
const lag = 5 * time.Second

// membership has the story of each object.
type membership struct {
	members map[ownership.UID]member // the objects that have an entry
	further furtherMembers           // the stories of the others, by hash of the UID
	seed    maphash.Seed             // of that hash
	most    int                      // bounds further
	homes   map[string]*entry        // namespaces and definitions in stories, by namespaceKey and definitionKey
}

// member has the story that an object belongs to. The entry is nil if there were too many objects.
type member struct {
	story *story
	entry *entry
}

func newMembership(most int) membership {
	return membership{
		members: map[ownership.UID]member{}, homes: map[string]*entry{},
		further: newFurtherMembers(), seed: maphash.MakeSeed(), most: most,
	}
}

// of returns the story that an object belongs to, false if it belongs to none.
func (m *membership) of(uid ownership.UID) (member, bool) {
	if found, known := m.members[uid]; known {
		return found, true
	}
	if m.further.len() == 0 {
		return member{}, false
	}
	s := m.further.find(m.hash(uid))
	return member{story: s}, s != nil
}

// hash returns the hash of a UID. Collisions are practically impossible.
func (m *membership) hash(uid ownership.UID) uint64 { return maphash.String(m.seed, string(uid)) }

// add adds an entry of a story.
func (m *membership) add(s *story, e *entry) {
	m.members[e.UID] = member{s, e}
	if key := homeKey(e.Kind, e.Name); key != "" {
		m.homes[key] = e
	}
}

// addFurther adds an object of a story that has no entry. Beyond the bound it is not known as a member: its dependents
// begin stories of their own.
func (m *membership) addFurther(s *story, uid ownership.UID) {
	if m.further.len() < m.most {
		m.further.add(m.hash(uid), s)
	}
}

// drop drops the objects of a story.
func (m *membership) drop(s *story) {
	for _, e := range s.entries {
		if m.members[e.UID].story == s {
			delete(m.members, e.UID)
		}
		if key := homeKey(e.Kind, e.Name); key != "" && m.homes[key] == e {
			delete(m.homes, key)
		}
	}
	if s.further.all > 0 {
		m.further.drop(s)
	}
}

// moveFurther moves the objects that have no entry from one story to another.
func (m *membership) moveFurther(from, to *story) {
	if from.further.all > 0 {
		m.further.move(from, to)
	}
}

// storyOf returns the story that an object belongs to: of an owner that goes, and otherwise of its home, which is
// returned, too. A home that was removed counts for a time (lag) or not at all. The story is nil if the object
// belongs to none.
func (m *membership) storyOf(o *ownership.Object, namespace ownership.UID, lag time.Duration, now time.Time) (*story, ownership.UID) {
	if s := m.storyOfOwners(o); s != nil {
		return s, ""
	}
	for _, key := range homesOf(o) {
		home := m.homes[key]
		if home == nil || home.kept || home.gone != 0 && now.UnixNano()-home.gone >= int64(lag) {
			continue
		}
		if home.Kind == "Namespace" && namespace != "" && namespace != home.UID {
			continue // it was in another one of that name
		}
		return m.members[home.UID].story, home.UID
	}
	return nil, ""
}

// storyOfOwners returns the story of the owners that are being deleted or are gone; the one that changed last, if there
// are several, and nil if there is none.
func (m *membership) storyOfOwners(o *ownership.Object) *story {
	var found *story
	for i := range o.Owners {
		owner, known := m.of(o.Owners[i].UID)
		isGoing := known && (owner.entry == nil || owner.entry.marked != 0 || owner.entry.gone != 0)
		if isGoing && (found == nil || owner.story.last.After(found.last)) {
			found = owner.story
		}
	}
	return found
}

// waitingHome returns the namespace or the definition of a key, if a story waits for its removal.
func (m *membership) waitingHome(key string) (member, bool) {
	home := m.homes[key]
	if home == nil || home.state() != stateWaiting {
		return member{}, false
	}
	return m.members[home.UID], true
}

// ownersOf returns the owners of an object for its entry. It shares the UIDs of owners in stories.
func (m *membership) ownersOf(o *ownership.Object) []Owner {
	var owners []Owner
	for i := range o.Owners[:min(len(o.Owners), mostOwners)] {
		uid := o.Owners[i].UID
		if owner := m.members[uid]; owner.entry != nil {
			uid = owner.entry.UID
		}
		owners = append(owners, Owner{UID: uid, Blocking: o.Owners[i].Blocking()})
	}
	return owners
}

// homesOf returns the keys of the namespace and of the definition of an object, with which it is deleted.
func homesOf(o *ownership.Object) []string {
	keys := make([]string, 0, 2)
	if o.Namespace != "" {
		keys = append(keys, namespaceKey(o.Namespace))
	}
	if o.Kind.Group != "" {
		keys = append(keys, definitionKey(resourceOf(o.Kind)))
	}
	return keys
}

// homeKey returns the key of a namespace or a definition, "" for any other object.
func homeKey(kind, name string) string {
	switch kind {
	case "Namespace":
		return namespaceKey(name)
	case "CustomResourceDefinition.apiextensions.k8s.io":
		return definitionKey(name)
	}
	return ""
}

func namespaceKey(name string) string      { return "namespace " + name }
func definitionKey(resource string) string { return "definition " + resource }

// resourceOf returns the resource of a kind, as in the name of its CustomResourceDefinition. It is a guess:
// with an irregular plural, the instances become stories of their own.
func resourceOf(k ownership.Kind) string {
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: k.Group, Kind: k.Kind})
	return plural.GroupResource().String()
}

// names are the names of kinds, "ReplicaSet.apps". Each is stored once.
type names map[ownership.Kind]string

// mostNames bounds names; a cluster has a few hundred kinds at a time.
const mostNames = 4096

func (n names) of(k ownership.Kind) string {
	name, known := n[k]
	if !known {
		if len(n) >= mostNames {
			clear(n)
		}
		name = nameOf(k)
		n[k] = name
	}
	return name
}

func nameOf(k ownership.Kind) string { return strings.TrimSuffix(k.String(), ".") }

func refOf(o *ownership.Object, home ownership.UID) Ref {
	return Ref{Kind: nameOf(o.Kind), Namespace: o.Namespace, NamespaceUID: home, Name: o.Name, UID: o.UID}
}
