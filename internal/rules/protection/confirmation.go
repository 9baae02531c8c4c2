package protection

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// A server with Limits refuses a larger deletion, unless a user has confirmed it (R32). The confirmation is an annotation
// of the object with which the deletion begins. Only users with the right ConfirmVerb for the object can set it. It counts
// for a set of objects, the closure of the deletion at that time, and for ConfirmedFor. It has the UID of the object:
// controllers copy annotations, and the copies count for nothing.

const (
	// Confirmed is the annotation of a Confirmation.
	Confirmed = "coppice.dev/confirmed"
	// ConfirmVerb is the verb in RBAC of the right to confirm deletions of an object.
	ConfirmVerb = "confirm"
	// ConfirmedFor is the time for which a confirmation counts.
	ConfirmedFor = 5 * time.Minute
	// clockSkew bounds how far ahead the clock of the client may be.
	clockSkew = time.Minute
)

// Unconfirmed begins the words of a refusal for want of a confirmation.
const Unconfirmed = "unconfirmed: "

// Types of the causes in the details of the refusal of an unconfirmed deletion.
const (
	// UnconfirmedCause is the type of the cause with the message of the refusal.
	UnconfirmedCause metav1.CauseType = Confirmed
	// DigestCause is the type of the cause with the digest that a Confirmation needs.
	DigestCause metav1.CauseType = Confirmed + "-digest"
	// ObjectsCause is the type of the cause with the number of objects that would be deleted.
	ObjectsCause metav1.CauseType = Confirmed + "-objects"
)

// Limits are the deletions that need no confirmation. The zero value has no limits.
type Limits struct {
	// MoreThan is the largest number of objects that are deleted unconfirmed; 0 for any number.
	MoreThan int
	// Kinds are the resources none of whose objects is deleted unconfirmed. Those without a group are of any group.
	Kinds []schema.GroupResource
	// Controllers are users whose deletions need no confirmation, besides the controllers of Kubernetes and of Coppice.
	Controllers []string
}

// ParseLimits returns the limits of a text such as "more-than=50; kinds=namespaces,deployments.apps".
func ParseLimits(text string) (Limits, error) {
	var l Limits
	for part := range strings.SplitSeq(text, ";") {
		key, value, _ := strings.Cut(part, "=")
		values := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
		switch key = strings.TrimSpace(key); {
		case key == "" && value == "":
		case key == "more-than":
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil || n < 1 {
				return Limits{}, fmt.Errorf("more-than=%s is no number of objects above 0", value)
			}
			l.MoreThan = n
		case len(values) == 0:
			return Limits{}, fmt.Errorf("%q has no value: an example is %s", key, limitsExample)
		case key == "kinds":
			for _, v := range values {
				l.Kinds = append(l.Kinds, schema.ParseGroupResource(strings.ToLower(v)))
			}
		case key == "controllers":
			l.Controllers = append(l.Controllers, values...)
		default:
			return Limits{}, fmt.Errorf("%q is unknown: choose more-than, kinds and controllers, as in %s", key, limitsExample)
		}
	}
	if !l.Any() {
		return Limits{}, fmt.Errorf("no limit: more-than or kinds is required, as in %s", limitsExample)
	}
	return l, nil
}

const limitsExample = `"more-than=50; kinds=namespaces,persistentvolumeclaims"`

// Any reports whether there are limits.
func (l Limits) Any() bool { return l.MoreThan > 0 || len(l.Kinds) > 0 }

// String returns the limits as ParseLimits reads them.
func (l Limits) String() string {
	var parts []string
	if l.MoreThan > 0 {
		parts = append(parts, fmt.Sprintf("more-than=%d", l.MoreThan))
	}
	if len(l.Kinds) > 0 {
		var kinds []string
		for _, k := range l.Kinds {
			kinds = append(kinds, k.String())
		}
		parts = append(parts, "kinds="+strings.Join(kinds, ","))
	}
	if len(l.Controllers) > 0 {
		parts = append(parts, "controllers="+strings.Join(l.Controllers, ","))
	}
	return strings.Join(parts, "; ")
}

// Limited reports whether no object of a resource is deleted unconfirmed.
func (l Limits) Limited(resource schema.GroupResource) bool {
	return slices.ContainsFunc(l.Kinds, func(k schema.GroupResource) bool {
		return k.Resource == resource.Resource && (k.Group == "" || k.Group == resource.Group)
	})
}

// Exempts reports whether the deletions of a user need no confirmation. Controllers delete their own objects, by rules
// that nobody can preview. Collectors are not exempt: they carry out the decisions of others.
func (l Limits) Exempts(user string) bool {
	return slices.Contains(l.Controllers, user) || isController(user) && !isCollector(user)
}

// isKubernetesController reports whether a service account of kube-system is that of a controller of Kubernetes. Others there
// may have names like these, and belong to programs that people have added.
func isKubernetesController(account string) bool {
	switch account {
	case "attachdetach-controller", "bootstrap-signer", "certificate-controller", "clusterrole-aggregation-controller", "cronjob-controller",
		"daemon-set-controller", "deployment-controller", "device-taint-eviction-controller", "disruption-controller", "endpoint-controller",
		"endpointslice-controller", "endpointslicemirroring-controller", "ephemeral-volume-controller", "expand-controller", "generic-garbage-collector",
		"horizontal-pod-autoscaler", "job-controller", "kube-apiserver-serving-clustertrustbundle-publisher", "legacy-service-account-token-cleaner",
		"namespace-controller", "node-controller", "persistent-volume-binder", "pod-garbage-collector", "podcertificaterequestcleaner",
		"podgroup-protection-controller", "pv-protection-controller", "pvc-protection-controller", "replicaset-controller", "replication-controller",
		"resource-claim-controller", "resourcepoolstatusrequest-controller", "resourcequota-controller", "root-ca-cert-publisher", "route-controller",
		"selinux-warning-controller", "service-account-controller", "service-cidrs-controller", "service-controller", "statefulset-controller",
		"storage-version-garbage-collector", "storage-version-migrator-controller", "token-cleaner", "ttl-after-finished-controller", "ttl-controller",
		"validatingadmissionpolicy-status-controller", "volumeattributesclass-protection-controller":
		return true
	default:
		return false
	}
}

// isController reports whether a user is a part of Kubernetes or of Coppice.
func isController(user string) bool {
	switch account, isAccount := strings.CutPrefix(user, "system:serviceaccount:kube-system:"); {
	case isAccount:
		return isKubernetesController(account)
	case strings.HasPrefix(user, "system:coppice:"):
		return user != "system:coppice:tools-user"
	}
	return strings.HasPrefix(user, "system:node:") || user == "system:kube-controller-manager" || user == "system:kube-scheduler"
}

// isCollector reports whether a user is a garbage collector.
func isCollector(user string) bool {
	return IsCascade(user) && !strings.HasSuffix(user, "namespace-controller")
}

// Closure is the set of objects that a deletion would delete.
type Closure struct {
	// Objects is their number.
	Objects int
	// Limited are resources of Limits.Kinds with an object among them, sorted.
	Limited []string
	// Uncounted are CustomResourceDefinitions among them whose resource is not served, sorted: how many instances go with
	// them is not known.
	Uncounted []string
	// Digest identifies the set of objects.
	Digest string
}

// DigestOf returns the digest of a set of objects, by their UIDs. It sorts them.
func DigestOf(uids []string) string {
	slices.Sort(uids)
	hash := sha256.New()
	for _, uid := range slices.Compact(uids) {
		_, _ = fmt.Fprintf(hash, "%q\n", uid)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// Exceeded reports whether a deletion needs a confirmation.
func (l Limits) Exceeded(c Closure) bool {
	return l.MoreThan > 0 && c.Objects > l.MoreThan || len(c.Limited)+len(c.Uncounted) > 0
}

// Confirmation is the content of the annotation Confirmed.
type Confirmation struct {
	// UID identifies the object with the annotation.
	UID types.UID
	// Digest identifies the closure of the deletion.
	Digest string
	// At is the time at which it was confirmed.
	At time.Time
}

// String returns the value of the annotation.
func (c Confirmation) String() string {
	return fmt.Sprintf("%s %s %s", c.UID, c.Digest, c.At.UTC().Format(time.RFC3339))
}

// ParseConfirmation returns the confirmation in an annotation.
func ParseConfirmation(annotation string) (Confirmation, error) {
	uid, rest, _ := strings.Cut(annotation, " ")
	digest, at, _ := strings.Cut(rest, " ")
	when, err := time.Parse(time.RFC3339, at)
	if err != nil || uid == "" || len(digest) != 2*sha256.Size {
		return Confirmation{}, fmt.Errorf("the annotation %s is not a UID, a digest and a time: coppice delete --confirm writes it", Confirmed)
	}
	return Confirmation{types.UID(uid), digest, when}, nil
}

// IsCurrent reports whether a confirmation counts at a time.
func (c Confirmation) IsCurrent(now time.Time) bool {
	age := now.Sub(c.At)
	return -clockSkew <= age && age <= ConfirmedFor
}

// CheckTime returns an error for a confirmation that does not count at a time.
func (c Confirmation) CheckTime(now time.Time) error {
	if c.IsCurrent(now) {
		return nil
	}
	return fmt.Errorf("the time in the annotation %s is not that of now: it counts for %s", Confirmed, ConfirmedFor)
}

// Confirms reports whether an object has a confirmation of a deletion that counts at a time.
func Confirms(m metav1.Object, c Closure, now time.Time) bool {
	confirmation, err := ParseConfirmation(m.GetAnnotations()[Confirmed])
	return err == nil && confirmation.UID == m.GetUID() && confirmation.Digest == c.Digest && confirmation.IsCurrent(now)
}

// NewConfirmation returns the confirmation that a write adds to an existing object. It returns false if it adds none that
// could count: an object that is being created has no UID that anybody could know before.
func NewConfirmation(before, after metav1.Object) (Confirmation, bool) {
	value := after.GetAnnotations()[Confirmed]
	confirmation, err := ParseConfirmation(value)
	return confirmation, err == nil && confirmation.UID == after.GetUID() && value != before.GetAnnotations()[Confirmed]
}

// Refuse returns the answer to a DELETE that needs a confirmation: 403 Forbidden. name is empty for a collection.
func (l Limits) Refuse(c Closure, resource schema.GroupResource, namespace, name string) *apierrors.StatusError {
	return unconfirmed(c, l.Excess(c), resource, namespace, name)
}

// RefuseCascade returns the answer to a collector that deletes an object whose owners have gone, or go, if the deletion of
// these owners would have needed a confirmation for everything that goes with them now.
func (l Limits) RefuseCascade(c Closure, resource schema.GroupResource, namespace, name string) *apierrors.StatusError {
	return unconfirmed(c, "no user has confirmed that it goes with its owners: "+l.Excess(c), resource, namespace, name)
}

func unconfirmed(c Closure, reason string, resource schema.GroupResource, namespace, name string) *apierrors.StatusError {
	what := arguments(resource, namespace, name)
	if name == "" {
		what = resource.String() + " --all"
		if namespace != "" {
			what += " -n " + namespace
		}
	}
	message := fmt.Sprintf("%s%s; to see them, and to confirm: coppice preview delete %s", Unconfirmed, reason, what)
	err := apierrors.NewForbidden(resource, name, errors.New(message))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
		metav1.StatusCause{Type: UnconfirmedCause, Message: message, Field: "metadata.annotations[" + Confirmed + "]"},
		metav1.StatusCause{Type: DigestCause, Message: c.Digest},
		metav1.StatusCause{Type: ObjectsCause, Message: strconv.Itoa(c.Objects)})
	return err
}

// Excess says why a deletion needs a confirmation; it is empty if it needs none.
func (l Limits) Excess(c Closure) string {
	if !l.Exceeded(c) {
		return ""
	}
	objects := fmt.Sprintf("%d objects would be deleted", c.Objects)
	if c.Objects == 1 {
		objects = "1 object would be deleted"
	}
	var reasons []string
	if l.MoreThan > 0 && c.Objects > l.MoreThan {
		reasons = append(reasons, fmt.Sprintf("more than %d need a confirmation", l.MoreThan))
	}
	switch limited := strings.Join(c.Limited, ", "); {
	case limited == "":
	case len(reasons) > 0:
		reasons = append(reasons, limited+" in any number")
	default:
		reasons = append(reasons, limited+" need a confirmation in any number")
	}
	if len(c.Uncounted) > 0 {
		reasons = append(reasons, "the objects of "+strings.Join(c.Uncounted, ", ")+" cannot be counted, because it is not served")
	}
	return objects + ", and " + strings.Join(reasons, ", and ")
}

// NeedsConfirmation returns what the refusal of an unconfirmed deletion says; false for other errors.
func NeedsConfirmation(err error) (Closure, bool) {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) || status.Status().Details == nil {
		return Closure{}, false
	}
	var c Closure
	isUnconfirmed := false
	for _, cause := range status.Status().Details.Causes {
		isUnconfirmed = isUnconfirmed || cause.Type == UnconfirmedCause
		if cause.Type == DigestCause {
			c.Digest = cause.Message
		}
		if cause.Type == ObjectsCause {
			c.Objects, _ = strconv.Atoi(cause.Message)
		}
	}
	return c, isUnconfirmed
}
