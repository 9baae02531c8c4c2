// Package protection holds the rule about objects whose label protects them from deletion (R28): the
// metadata and the deleter go in, a refusal or nil comes out.
//
//	p, protected := protection.Of(object)
//	remaining := the entries of p.Outlives that exist // as far as the deleter may read them
//	if r := p.Answer(deleter, remaining); r != nil {
//	    return r.Error(resource, namespace, name) // 403 Forbidden, with a cause of ours
//	}
//
// The label says that an object is protected, and in which mode. It is a label so that selectors match
// it, also the selectors of webhooks and policies. A server may have Defaults for objects without it. The
// annotation lists the objects that an object outlives. Every user with the right to update an object can
// remove both: protection prevents mistakes, and is not access control.
//
// A client recognizes a refusal (Refused), and does not try again before the object has changed or
// RetryAfter is over (Held). The server decides how to refuse: ours calls this package in the
// transaction that would delete; on other servers a policy or a webhook refuses.
//
// The package is pure. Package internal/collect/protected looks up the objects that an object outlives, and keeps
// clients from repeating refused deletions.
package protection

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

const (
	// Label marks an object as protected; its value is the Mode.
	Label = "coppice.dev/protect"
	// Annotation of an object whose mode is Outlives: a JSON list of Other.
	Annotation = "coppice.dev/outlives"
	// Enforcer is the name of the admission policy, of its binding and of the webhook configuration, which
	// enforce the rule on other servers than ours.
	Enforcer = "coppice-protect"
	// MaxOutlives bounds the list: a deletion looks up each entry.
	MaxOutlives = 128
	// RetryAfter is the time after which a refused deletion is tried again although the object has not
	// changed: the objects that it outlives may be gone.
	RetryAfter = time.Minute
)

// Mode is how an object is protected.
type Mode string

const (
	// Always protects from every deletion. Unknown values do, too.
	Always Mode = "always"
	// Cascading protects from deletions that follow from another deletion: of an owner, of the
	// namespace, of the CustomResourceDefinition.
	Cascading Mode = "cascading"
	// Outlives protects from every deletion as long as any of the listed objects exists.
	Outlives Mode = "outlives"
	// Unused protects from every deletion as long as another object needs the object: by a field of Kubernetes' API
	// (inuse.References), as an instance of a CustomResourceDefinition, or as a content of a namespace.
	Unused Mode = "unused"
)

// Modes returns all modes.
func Modes() []Mode { return []Mode{Always, Cascading, Outlives, Unused} }

// Deleter is the sort of client that deletes.
type Deleter uint8

const (
	// Request is a person, or a controller with a reason of its own.
	Request Deleter = iota
	// Cascade is a client that deletes because another object was deleted: a garbage collector, a
	// namespace controller, or the server, which deletes the instances of a CustomResourceDefinition.
	Cascade
)

// Outlived is an entry of the annotation: an object, by name and whatever its UID, or all objects that have a
// finalizer.
type Outlived struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	// Finalizer is set alone.
	Finalizer string `json:"finalizer,omitempty"`
}

// GroupVersionKind returns the kind of an object.
func (o Outlived) GroupVersionKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(o.APIVersion, o.Kind)
}

// String returns the entry as a person would name it.
func (o Outlived) String() string {
	if o.Finalizer != "" {
		return "objects with the finalizer " + o.Finalizer
	}
	name := o.Name
	if name == "" {
		return "objects of the kind " + o.GroupVersionKind().GroupKind().String()
	}
	if o.Namespace != "" {
		name = o.Namespace + "/" + name
	}
	return o.GroupVersionKind().GroupKind().String() + " " + name
}

// check returns an error if the entry is not valid.
func (o Outlived) check() error {
	group, err := schema.ParseGroupVersion(o.APIVersion)
	switch {
	case o.Finalizer != "" && o != (Outlived{Finalizer: o.Finalizer}):
		return fmt.Errorf("finalizer %s is named together with an object", o.Finalizer)
	case o.Finalizer != "":
		return nil
	case err != nil:
		return err
	case group.Version == "" || o.Kind == "" || o.Name == "":
		return fmt.Errorf("apiVersion, kind and name are required, but it has %+v", o)
	case !ownership.IsName(o.Name) || !ownership.IsName(o.Namespace):
		return fmt.Errorf("no object can have the name %q in the namespace %q", o.Name, o.Namespace)
	default:
		return nil
	}
}

// Protection is how one object is protected.
type Protection struct {
	// Label is the value of the label, and Mode its meaning.
	Label string
	Mode  Mode
	// Outlives are the objects that the object outlives.
	Outlives []Outlived
	// Invalid says why the label or the annotation is not valid; the object is then protected as by
	// Always.
	Invalid string
	// Unchecked says why Outlives is not looked up (CheckedBy); all of them count as existing.
	Unchecked string
	// ByDefault is set if the mode is the default of the object's resource, and the object has no label.
	ByDefault bool
}

// Of returns how an object with these metadata is protected by its own label; false if it is not. Servers that have
// Defaults ask these.
func Of(m metav1.Object) (Protection, bool) {
	if !IsMarked(m.GetLabels()) {
		return Protection{}, false
	}
	return New(m.GetLabels()[Label], m.GetAnnotations()[Annotation]), true
}

// New returns the protection for these values of the label and the annotation.
func New(label, annotation string) Protection {
	p := Protection{Label: label, Mode: Mode(label)}
	switch p.Mode {
	case Always, Cascading, Unused:
		return p
	case Outlives:
		outlived, err := ParseOutlives(annotation)
		if err == nil {
			p.Outlives = outlived
			return p
		}
		p.Invalid = err.Error()
	default:
		p.Invalid = fmt.Sprintf("the mode is unknown; modes are %s", textOf(Modes()))
	}
	p.Mode = Always
	return p
}

// ParseMode returns the mode of that name.
func ParseMode(name string) (Mode, error) {
	if m := Mode(name); slices.Contains(Modes(), m) {
		return m, nil
	}
	return "", fmt.Errorf("mode %q is unknown: choose one of %s", name, textOf(Modes()))
}

// ParseOutlives returns the entries of the annotation.
func ParseOutlives(annotation string) ([]Outlived, error) {
	if annotation == "" {
		return nil, fmt.Errorf("the annotation %s is missing, which lists what the object outlives", Annotation)
	}
	var outlived []Outlived
	if err := json.Unmarshal([]byte(annotation), &outlived); err != nil {
		return nil, fmt.Errorf("the annotation %s is not a JSON list of objects: %w", Annotation, err)
	}
	if len(outlived) == 0 || len(outlived) > MaxOutlives {
		return nil, fmt.Errorf("the annotation %s lists %d objects, and not 1 to %d", Annotation, len(outlived), MaxOutlives)
	}
	for i, o := range outlived {
		if err := o.check(); err != nil {
			return nil, fmt.Errorf("the annotation %s, entry %d: %w", Annotation, i, err)
		}
	}
	return outlived, nil
}

// FormatOutlives returns the annotation that lists the entries, sorted, each once.
func FormatOutlives(outlived []Outlived) (string, error) {
	outlived = slices.Clone(outlived)
	slices.SortFunc(outlived, func(a, b Outlived) int { return strings.Compare(a.String()+a.APIVersion, b.String()+b.APIVersion) })
	annotation, err := json.Marshal(slices.Compact(outlived))
	if err != nil {
		return "", err
	}
	if _, err := ParseOutlives(string(annotation)); err != nil {
		return "", err
	}
	return string(annotation), nil
}

// Remaining is an object that prevents the deletion: an entry whose object exists, or counts as existing, or an object that
// uses the protected one. Without a name, it stands for objects of a kind.
type Remaining struct {
	Outlived

	// UID is the UID of an object that uses the protected one; empty for others.
	UID types.UID
	// Field is the field by which it uses the protected object; empty for others.
	Field string
	// Unknown says why the lookup failed; empty if it did not.
	Unknown string
	// Unread is set if the deleter may not read it: no refusal names it. An entry was not looked up.
	Unread bool
	// Busy is set, and nothing else, if there may be more, which were not looked up: too many others look up, too.
	Busy bool
}

// NeedsLookup reports whether Decide needs the objects that remain.
func (p Protection) NeedsLookup() bool {
	return p.Mode == Unused || p.Mode == Outlives && p.Unchecked == ""
}

// Decide returns why the object is not deleted, or nil. It needs the remaining objects in some modes only
// (NeedsLookup). The object must not be in deletion yet: a deletion that has begun is not taken back (R19).
func (p Protection) Decide(by Deleter, remaining []Remaining) *Refusal {
	switch {
	case p.Mode == Cascading && by == Request:
		return nil
	case p.NeedsLookup() && len(remaining) == 0:
		return nil
	default:
		return &Refusal{protection: p, remaining: remaining}
	}
}

// cascades are the users that delete because another object was deleted.
var cascades = map[string]bool{
	"system:coppice:collector":                                    true,
	"system:coppice:namespace-controller":                         true,
	"system:serviceaccount:kube-system:generic-garbage-collector": true,
	"system:serviceaccount:kube-system:namespace-controller":      true,
	// All controllers, if they have no service accounts of their own.
	"system:kube-controller-manager": true,
	// coppice collect, as deploy/ installs it.
	"system:serviceaccount:coppice-system:coppice": true,
}

// IsCascade reports whether a user is a garbage collector or a namespace controller.
func IsCascade(user string) bool { return cascades[user] }
