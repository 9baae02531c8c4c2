package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// references checks the owner references of an object.
func (c *checker) references(o *inventory.Object) {
	if len(o.Owners) == 0 {
		return
	}
	var controllers []string
	for n, owner := range c.graph.Owners(o.UID) {
		if owner.Reference.Controller == ownership.True {
			controllers = append(controllers, nameOf(owner.Reference))
		}
		if slices.ContainsFunc(o.Owners[:n], func(earlier ownership.Reference) bool { return isSame(earlier, owner.Reference) }) {
			c.found(Duplicate, o, n, nameOf(owner.Reference)+" is named more than once as an owner.")
			continue
		}
		if code, message := c.reference(o, owner); code != "" {
			c.found(code, o, n, message)
		}
	}
	if len(controllers) > 1 {
		c.found(SeveralControl, o, -1, "More than one owner is marked as the controller: "+strings.Join(controllers, ", ")+".")
	}
}

// isSame reports whether two references name the same owner: the version is a hint only (R1).
func isSame(a, b ownership.Reference) bool {
	return a.UID == b.UID && a.OwnerKind() == b.OwnerKind() && a.Name == b.Name
}

// reference returns the error of a reference; the code is empty if it has none.
func (c *checker) reference(o *inventory.Object, owner ownership.Owner) (Code, string) {
	ref := owner.Reference
	if _, err := schema.ParseGroupVersion(ref.APIVersion); err != nil || ref.APIVersion == "" {
		return InvalidAPIVersion, fmt.Sprintf("The apiVersion %q of the owner %s %s cannot be parsed.", ref.APIVersion, ref.Kind, ref.Name)
	}
	if code, message := misled(o, ref, c.inv.Object(ref.UID)); code != "" {
		return code, message
	}
	r := c.inv.Resource(ref.OwnerKind())
	switch {
	case r == nil && c.groupAnswers(ref.OwnerKind().Group):
		return KindNotServed, fmt.Sprintf("No API serves %s, the kind of the owner %s.", ref.OwnerKind(), ref.Name)
	case r == nil:
		return OwnerUnread, fmt.Sprintf("The owner %s is of a group that does not answer.", nameOf(ref))
	case r.Namespaced && o.Namespace == "":
		return WrongScope, fmt.Sprintf("The owner %s is namespaced, and a cluster-scoped object cannot have such an owner.", nameOf(ref))
	case len(r.Versions) > 0 && !slices.Contains(r.Versions, versionOf(ref)):
		return VersionNotServed, fmt.Sprintf("%s is not served as %s, only as %s.", ref.OwnerKind(), ref.APIVersion, strings.Join(r.Versions, ", "))
	case owner.Presence == ownership.Present:
		return "", ""
	default:
		return c.missing(o, owner, r)
	}
}

// misled checks a reference against the object with its UID, if that object was read.
func misled(o *inventory.Object, ref ownership.Reference, actual *inventory.Object) (Code, string) {
	switch {
	case actual == nil:
		return "", ""
	case actual.Namespace != "" && o.Namespace == "":
		return WrongScope, fmt.Sprintf("The owner %s is in namespace %s, and a cluster-scoped object cannot have such an owner.", nameOf(ref), actual.Namespace)
	case actual.Namespace != "" && actual.Namespace != o.Namespace:
		return WrongNamespace, fmt.Sprintf("The owner %s is in another namespace, %s.", nameOf(ref), actual.Namespace)
	case actual.Kind != ref.OwnerKind():
		return WrongKind, fmt.Sprintf("The owner is named as %s, and the object with its UID is a %s.", nameOf(ref), actual.Kind)
	case actual.Name != ref.Name:
		return WrongName, fmt.Sprintf("The owner is named as %s, and the object with its UID is called %s.", nameOf(ref), actual.Name)
	default:
		return "", ""
	}
}

// missing checks a reference to an owner that was not read, although its kind is served.
func (c *checker) missing(o *inventory.Object, owner ownership.Owner, r *inventory.Resource) (Code, string) {
	ref := owner.Reference
	switch other := c.inv.Named(r, owner.Claim.Namespace, ref.Name); {
	case c.tooNew(o):
		return OwnerUnread, fmt.Sprintf("The owner %s was not found, but the object was created while the cluster was read.", nameOf(ref))
	case other != nil:
		return OwnerReplaced, fmt.Sprintf("The owner %s has UID %s, and the object of that name has %s.", nameOf(ref), ref.UID, other.UID)
	case owner.Presence == ownership.Absent:
		return OwnerAbsent, fmt.Sprintf("The owner %s (%s) does not exist.", nameOf(ref), ref.UID)
	default:
		return OwnerUnread, fmt.Sprintf("The owner %s was not found, and not all objects of its kind could be read.", nameOf(ref))
	}
}

// tooNew reports whether an object may be younger than the list in which its owner is missing. Times of
// creation are in whole seconds.
func (c *checker) tooNew(o *inventory.Object) bool {
	return !o.Created.Before(c.inv.Read.Truncate(time.Second))
}

// groupAnswers reports whether discovery has answered for a group: then kinds that it does not list are not served.
func (c *checker) groupAnswers(group string) bool {
	return !slices.ContainsFunc(c.inv.Unread, func(u inventory.Unread) bool { return u.Resource.Resource == "" && u.Resource.Group == group })
}

// versionOf returns the version of a reference without its group.
func versionOf(ref ownership.Reference) string {
	return ref.APIVersion[strings.LastIndexByte(ref.APIVersion, '/')+1:]
}

func nameOf(ref ownership.Reference) string { return ref.OwnerKind().String() + " " + ref.Name }
