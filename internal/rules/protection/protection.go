// Package protection holds the rule about objects that say of themselves that they are not to be
// deleted (R28): metadata and who deletes go in, a refusal comes out, or none.
//
//	p, protected := protection.Of(object)
//	left := the entries of p.Others that exist    // as far as the deleter may read them
//	if r := p.Answer(deleter, left); r != nil {
//	    return r.Error(resource, namespace, name) // 403 Forbidden, with a cause of ours
//	}
//
// The label says that an object is protected, and in which mode; a label, so that selectors find it,
// those of webhooks and policies, too. The annotation lists what an object outlives. Whoever may
// update an object may take both away: this prevents mistakes, and is no permission.
//
// Who meets a refusal recognizes it (Refused), and does not try again before the object has changed or
// RetryAfter is over (Held). What a refusal rests on is up to the server: our own asks this package in
// the transaction that would delete, on others a policy or a webhook refuses.
//
// The package is pure. Below internal/collect/protected, package others looks up what an object outlives, and
// package parking keeps clients from asking again and again.
package protection

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// Label says that an object is protected; its value is the Mode.
	Label = "coppice.dev/protect"
	// Annotation of an object whose mode is Outlives: a JSON list of Other.
	Annotation = "coppice.dev/outlives"
	// Enforcer is the name of the admission policy, of its binding, and of the webhook's configuration that
	// enforce the rule on other servers than ours.
	Enforcer = "coppice-protect"
	// MaxOthers bounds the list: each is looked up for a deletion.
	MaxOthers = 128
	// RetryAfter is when a deletion that was refused may be tried again although the object has not
	// changed: what it outlives may have gone.
	RetryAfter = time.Minute
)

// Mode is how an object is protected.
type Mode string

const (
	// Always protects from every deletion. Values that are not known do, too.
	Always Mode = "always"
	// Cascading protects from deletions that follow from another: of an owner, of the namespace, of
	// the CustomResourceDefinition.
	Cascading Mode = "cascading"
	// Outlives protects from every deletion for as long as any of the others is there.
	Outlives Mode = "outlives"
)

// Modes are all modes.
func Modes() []Mode { return []Mode{Always, Cascading, Outlives} }

// Deleter is who deletes.
type Deleter uint8

const (
	// Request is a person, or a controller that has its own reason.
	Request Deleter = iota
	// Cascade is what deletes because something else was deleted: a garbage collector, a namespace
	// controller, and the server, which deletes the instances of a CustomResourceDefinition.
	Cascade
)

// Other is what an object outlives: an object, by name, whatever its UID, or every object that has a
// finalizer.
type Other struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	// Finalizer is set alone.
	Finalizer string `json:"finalizer,omitempty"`
}

// GroupVersionKind returns the kind of an object.
func (o Other) GroupVersionKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(o.APIVersion, o.Kind)
}

// String names the other as a person would.
func (o Other) String() string {
	if o.Finalizer != "" {
		return "objects with the finalizer " + o.Finalizer
	}
	name := o.Name
	if o.Namespace != "" {
		name = o.Namespace + "/" + name
	}
	return o.GroupVersionKind().GroupKind().String() + " " + name
}

// check returns what is wrong.
func (o Other) check() error {
	group, err := schema.ParseGroupVersion(o.APIVersion)
	switch {
	case o.Finalizer != "" && o != (Other{Finalizer: o.Finalizer}):
		return fmt.Errorf("finalizer %s is named together with an object", o.Finalizer)
	case o.Finalizer != "":
		return nil
	case err != nil:
		return err
	case group.Version == "" || o.Kind == "" || o.Name == "":
		return fmt.Errorf("apiVersion, kind and name are required, but it has %+v", o)
	default:
		return nil
	}
}

// Protection is how one object is protected.
type Protection struct {
	// Label is the value of the label, and Mode what it means.
	Label string
	Mode  Mode
	// Others are what the object outlives.
	Others []Other
	// Invalid says why the object cannot be protected as it asks to be; it is then protected as by
	// Always.
	Invalid string
	// Unchecked says why nobody looks up what the object outlives (CheckedBy); it all counts as there.
	Unchecked string
}

// Of returns how an object with these metadata is protected; false if it is not.
func Of(m metav1.Object) (Protection, bool) {
	value, protected := m.GetLabels()[Label]
	if !protected {
		return Protection{}, false
	}
	return New(value, m.GetAnnotations()[Annotation]), true
}

// New returns the protection that a label and an annotation with these values mean.
func New(label, annotation string) Protection {
	p := Protection{Label: label, Mode: Mode(label)}
	switch p.Mode {
	case Always, Cascading:
		return p
	case Outlives:
		others, err := ParseOthers(annotation)
		if err == nil {
			p.Others = others
			return p
		}
		p.Invalid = err.Error()
	default:
		p.Invalid = fmt.Sprintf("the mode is not known, it is none of %s", modes())
	}
	p.Mode = Always
	return p
}

func modes() string {
	var all []string
	for _, m := range Modes() {
		all = append(all, string(m))
	}
	return strings.Join(all, ", ")
}

// ParseMode returns the mode of that name.
func ParseMode(name string) (Mode, error) {
	if m := Mode(name); slices.Contains(Modes(), m) {
		return m, nil
	}
	return "", fmt.Errorf("mode %q is none of %s", name, modes())
}

// ParseOthers returns what the annotation lists.
func ParseOthers(annotation string) ([]Other, error) {
	if annotation == "" {
		return nil, fmt.Errorf("the annotation %s is missing, which lists what the object outlives", Annotation)
	}
	var others []Other
	if err := json.Unmarshal([]byte(annotation), &others); err != nil {
		return nil, fmt.Errorf("the annotation %s is not a JSON list of objects: %w", Annotation, err)
	}
	if len(others) == 0 || len(others) > MaxOthers {
		return nil, fmt.Errorf("the annotation %s lists %d objects, and not 1 to %d", Annotation, len(others), MaxOthers)
	}
	for i, o := range others {
		if err := o.check(); err != nil {
			return nil, fmt.Errorf("the annotation %s, entry %d: %w", Annotation, i, err)
		}
	}
	return others, nil
}

// FormatOthers returns the annotation that lists them, sorted, each once.
func FormatOthers(others []Other) (string, error) {
	others = slices.Clone(others)
	slices.SortFunc(others, func(a, b Other) int { return strings.Compare(a.String()+a.APIVersion, b.String()+b.APIVersion) })
	annotation, err := json.Marshal(slices.Compact(others))
	if err != nil {
		return "", err
	}
	if _, err := ParseOthers(string(annotation)); err != nil {
		return "", err
	}
	return string(annotation), nil
}

// Left is one of the others that is there, or counts as there.
type Left struct {
	Other

	// Unknown says why it could not be found out whether it is there.
	Unknown string
	// Unread is set if the deleter may not read it. Nobody looked it up, and no refusal names it.
	Unread bool
}

// NeedsLookup reports whether Decide has to be told which of the others are left.
func (p Protection) NeedsLookup() bool { return p.Mode == Outlives && p.Unchecked == "" }

// Decide returns why the object is not deleted, or nil. left are those of the others that are there;
// it is asked for in mode Outlives only. The object is not being deleted yet: what has begun is not
// taken back (R19).
func (p Protection) Decide(by Deleter, left []Left) *Refusal {
	switch {
	case p.Mode == Cascading && by == Request:
		return nil
	case p.NeedsLookup() && len(left) == 0:
		return nil
	default:
		return &Refusal{protection: p, left: left}
	}
}

// cascades are the users that delete because something else was deleted.
//
//nolint:gochecknoglobals // a constant set
var cascades = map[string]bool{
	"system:coppice:collector":                                    true,
	"system:coppice:namespace-controller":                         true,
	"system:serviceaccount:kube-system:generic-garbage-collector": true,
	"system:serviceaccount:kube-system:namespace-controller":      true,
	// All controllers in one, where they do not have a service account each.
	"system:kube-controller-manager": true,
	// coppice collect, as deploy/ installs it.
	"system:serviceaccount:coppice-system:coppice": true,
}

// IsCascade reports whether a user is a garbage collector or a namespace controller.
func IsCascade(user string) bool { return cascades[user] }
