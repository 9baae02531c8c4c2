package protection

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/escape"
)

// Cause is the type of the cause in the details of a refusal.
const Cause metav1.CauseType = Label

// MaxNamed bounds the objects that a refusal names. Callers need not look up more.
const MaxNamed = 5

// The beginnings of reasons: the object has the label, or its resource has a default.
const (
	ByLabel   = "protected by its label "
	ByDefault = "protected by default, as if it had the label "
)

// Refusal is the reason why an object is not deleted.
type Refusal struct {
	protection Protection
	remaining  []Remaining
}

// Reason returns the label that protects the object, and why it prevents the deletion.
func (r *Refusal) Reason() string {
	p := r.protection
	by := fmt.Sprintf("%s%s=%s: ", ByLabel, Label, p.Label)
	if p.ByDefault {
		by = fmt.Sprintf("%s%s=%s: ", ByDefault, Label, p.Label)
	}
	switch {
	case p.Invalid != "":
		return by + "nobody deletes it, as " + p.Invalid
	case p.Mode == Cascading:
		return by + "it is not deleted with an owner, its namespace or its CustomResourceDefinition"
	case p.Unchecked != "":
		return by + "what its annotation " + Annotation + " lists counts as there: " + p.Unchecked
	case p.Mode == Outlives:
		return by + "it outlives " + r.named("objects in its annotation "+Annotation+" that the user who deletes may not read, which count as there")
	case p.Mode == Unused:
		return by + "it is in use by " + r.named("objects that you may not list")
	default:
		return by + "nobody deletes it"
	}
}

// isBusy reports whether nothing remains but objects that were not looked up.
func (r *Refusal) isBusy() bool {
	return len(r.remaining) > 0 && !slices.ContainsFunc(r.remaining, func(l Remaining) bool { return !l.Busy })
}

// named lists the remaining objects. All that the deleter has no right to read are unreadable, a text.
func (r *Refusal) named(unreadable string) string {
	var names []string
	unread := false
	for _, l := range r.remaining {
		if l.Busy {
			continue
		}
		if l.Unread {
			unread = true
			continue
		}
		if len(names) == MaxNamed {
			names = append(names, "and others")
			break
		}
		name := l.String()
		if l.Field != "" {
			name += " (" + l.Field + ")"
		}
		if l.Unknown != "" {
			name += " (not known whether that is there: " + l.Unknown + ")"
		}
		names = append(names, name)
	}
	if unread {
		names = append(names, unreadable)
	}
	return strings.Join(names, ", ")
}

// Command returns the command that lifts the protection of an object. Users paste it into a shell, and users
// choose names, so the arguments are quoted.
func Command(resource schema.GroupResource, namespace, name string) string {
	return "coppice unprotect " + arguments(resource, namespace, name)
}

// CheckCommand returns the command that has all entries of an object checked.
func CheckCommand(resource schema.GroupResource, namespace, name string) string {
	return "coppice protect --mode=" + string(Outlives) + " " + arguments(resource, namespace, name)
}

func arguments(resource schema.GroupResource, namespace, name string) string {
	arguments := escape.Shell(resource.String() + "/" + name)
	if namespace != "" {
		arguments += " -n " + escape.Shell(namespace)
	}
	return arguments
}

// busySeconds is the time after which a client should try again if the users of an object were not looked up.
const busySeconds = 1

// Error returns the answer to a DELETE of the object: 403 Forbidden, or 429 if nothing is known that uses it, and not
// everything was looked up.
func (r *Refusal) Error(resource schema.GroupResource, namespace, name string) *apierrors.StatusError {
	if r.isBusy() {
		return apierrors.NewTooManyRequests(fmt.Sprintf("whether objects use %s %q, which has the label %s=%s, is not known yet: "+
			"the server looks up the users of other objects; try again", resource, name, Label, Unused), busySeconds)
	}
	message := r.Reason()
	if r.protection.Unchecked != "" {
		message += "; to have the list checked: " + CheckCommand(resource, namespace, name)
	}
	message += "; to lift that: " + Command(resource, namespace, name)
	err := apierrors.NewForbidden(resource, name, errors.New(message))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: Cause, Message: message, Field: "metadata.labels[" + Label + "]",
	})
	return err
}

// Refused reports whether an error is the refusal to delete a protected object, and returns its message.
// The refusal of our server has the Cause; policies and webhooks on other servers cannot set one, so
// their refusals name the label.
func Refused(err error) (message string, refused bool) {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return "", false
	}
	s := status.Status()
	return refusedBy(&s)
}

func refusedBy(s *metav1.Status) (message string, refused bool) {
	if s.Reason != metav1.StatusReasonForbidden && s.Reason != metav1.StatusReasonInvalid {
		return "", false
	}
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			if c.Type == Cause {
				return c.Message, true
			}
		}
	}
	return s.Message, strings.Contains(s.Message, Label)
}
