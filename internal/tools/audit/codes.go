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
			"If the object has no other owner, a collector deletes it. To keep it, remove the reference. If it stays, check whether a collector runs.",
		},
		{
			OwnerReplaced, Error, "The owner's name belongs to another object now.",
			"If the object has no other owner, a collector deletes it. To keep it, remove the reference, or let the owner's controller adopt it.",
		},
		{
			WrongNamespace, Error, "The owner is in another namespace.",
			"Remove the reference, or a collector deletes the object: owners live in the same namespace, or are cluster-scoped.",
		},
		{
			WrongScope, Error, "A cluster-scoped object names a namespaced owner.",
			"Remove the reference: the object is never deleted because of it. To delete the object with its owner, use a finalizer of a controller.",
		},
		{
			WrongKind, Error, "The owner is of another kind.",
			"Set kind and apiVersion to the values of the object with that UID, or remove the reference.",
		},
		{
			WrongName, Error, "The owner has another name.",
			"Set the name to the name of the object with that UID, or remove the reference.",
		},
		{
			InvalidAPIVersion, Error, "The reference's apiVersion cannot be parsed.",
			"Correct the apiVersion to GROUP/VERSION, or remove the reference.",
		},
		{
			KindNotServed, Error, "No API serves the owner's kind.",
			"If the API was removed for good, remove the reference: until then the object is neither deleted nor released.",
		},
		{
			VersionNotServed, Error, "The owner's kind is not served in that version.",
			"Change the reference to a served version: kube-controller-manager cannot look up the owner, and does not delete the object.",
		},
		{
			OwnerUnread, Note, "It is unknown whether the owner exists.",
			"Check again when the group of the owner's kind answers, with the right to list the kind.",
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
			SeveralControl, Error, "Several owners have controller: true.",
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
			TerminatingLong, Warning, "The object has been terminating for a long time.",
			"Find the controller of the remaining finalizers, and why it does not remove them. If you remove them by hand, the resources that they protect remain.",
		},
		{
			LooksOwned, Warning, "The object seems to have lost its owner.",
			"If nothing uses the object any more, delete it; otherwise nothing is wrong with it.",
		},
		{
			Unserved, Warning, "No working controller serves the finalizer.",
			"Restore the controller before you delete the object: without it, neither the deletion of the object nor that of its namespace ends.",
		},
		{
			Unpermitted, Warning, "The controller may not block the owner's deletion.",
			"Allow the controller's role to update the finalizers subresource of the owner's resource, or change the controller to leave out blockOwnerDeletion.",
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
