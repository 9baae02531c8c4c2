package audit

import "slices"

// Code identifies the rule of a finding. Codes are stable: baselines and filters of CI services contain them.
type Code string

// The codes, in the order of Rules.
const (
	OwnerAbsent       Code = "owner-absent"
	OwnerReplaced     Code = "owner-replaced"
	WrongNamespace    Code = "owner-in-other-namespace"
	WrongScope        Code = "owner-namespaced"
	WrongKind         Code = "owner-kind-mismatch"
	WrongName         Code = "owner-name-mismatch"
	InvalidAPIVersion Code = "owner-apiversion-invalid"
	KindNotServed     Code = "owner-kind-not-served"
	VersionNotServed  Code = "owner-version-not-served"
	OwnerUnread       Code = "owner-not-seen"
	Duplicate         Code = "duplicate-reference"
	SeveralControl    Code = "several-controllers"
	Cycle             Code = "owner-cycle"
	NamespaceGone     Code = "namespace-absent"
	TerminatingLong   Code = "terminating-long"
	LooksOwned        Code = "looks-owned"
	Unserved          Code = "finalizer-not-served"
	Unpermitted       Code = "block-owner-not-permitted"
)

// Rule describes a code, independently of the object.
type Rule struct {
	Code       Code
	Severity   Severity
	Title      string
	Suggestion string
}

// Rules returns all rules.
func Rules() []Rule { return slices.Concat(rulesOfReferences(), rulesOfObjects()) }

// rulesOfReferences returns the rules about single owner references.
func rulesOfReferences() []Rule {
	return []Rule{
		{
			OwnerAbsent, Error, "The owner does not exist.",
			"If nothing else owns the object, a collector deletes it: to keep it, remove the reference; if it stays, see why no collector runs.",
		},
		{
			OwnerReplaced, Error, "The owner's name belongs to another object now.",
			"If nothing else owns the object, a collector deletes it: to keep it, remove the reference, or have the owner's controller adopt the object.",
		},
		{
			WrongNamespace, Error, "The owner is in another namespace.",
			"Remove the reference, or a collector deletes the object: owners live in the same namespace, or are cluster-scoped.",
		},
		{
			WrongScope, Error, "A cluster-scoped object names a namespaced owner.",
			"Remove the reference: the object is never deleted because of it. Where it is to go with the owner, its controller needs a finalizer.",
		},
		{
			WrongKind, Error, "The owner is of another kind.",
			"Correct kind and apiVersion to those of the object with that UID, or remove the reference.",
		},
		{
			WrongName, Error, "The owner has another name.",
			"Correct the name to that of the object with that UID, or remove the reference.",
		},
		{
			InvalidAPIVersion, Error, "The reference's apiVersion cannot be parsed.",
			"Correct the apiVersion to GROUP/VERSION, or remove the reference.",
		},
		{
			KindNotServed, Error, "No API serves the owner's kind.",
			"If the API was removed for good, remove the reference: until then the object is neither deleted nor let go.",
		},
		{
			VersionNotServed, Error, "The owner's kind is not served in that version.",
			"Write the reference with a version that is served: kube-controller-manager cannot look the owner up, and lets the object stay.",
		},
		{
			OwnerUnread, Note, "Whether the owner exists could not be seen.",
			"Check again as a user who may list the owner's kind, or when its group answers.",
		},
		{
			Duplicate, Warning, "An owner is named twice.",
			"Remove all but one of the references.",
		},
	}
}

// rulesOfObjects returns the rules about whole objects.
func rulesOfObjects() []Rule {
	return []Rule{
		{
			SeveralControl, Error, "Several owners are the controller.",
			"Leave controller: true on the reference to the one that manages the object.",
		},
		{
			Cycle, Error, "Objects own each other.",
			"Remove a reference of the cycle: each of these objects has an owner, so none of them is ever collected.",
		},
		{
			NamespaceGone, Error, "The object's namespace does not exist.",
			"Create the namespace and delete it again, or delete the object by its name.",
		},
		{
			TerminatingLong, Warning, "The object has been terminating for long.",
			"See which controller serves the finalizers that are left, and why it does not remove them: taking them away by hand leaves behind what they protect.",
		},
		{
			LooksOwned, Warning, "The object looks as if it had lost its owner.",
			"If nothing uses the object any more, delete it; otherwise nothing is wrong with it.",
		},
		{
			Unserved, Warning, "No controller that works serves the finalizer.",
			"Bring back the controller before the object is deleted: until then a deletion does not end, and nor does that of its namespace.",
		},
		{
			Unpermitted, Warning, "The controller may not block the owner's deletion.",
			"Let the controller's role update the finalizers subresource of the owner's resource, or have it leave out blockOwnerDeletion.",
		},
	}
}

func ruleOf(code Code) Rule {
	for _, r := range Rules() {
		if r.Code == code {
			return r
		}
	}
	return Rule{Code: code, Severity: Error}
}
