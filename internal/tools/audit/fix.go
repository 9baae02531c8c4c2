package audit

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Fix is a change of one object that removes provably wrong references. It never causes a deletion: without
// them, the object is kept.
type Fix struct {
	Object Object
	// Removes are the findings of the references to remove, in the order of the references.
	Removes []Finding
	// Absent are claims to verify by a live read before the fix: lists are no evidence of absence (R3).
	Absent []ownership.Claim
}

// Fixes returns the fixes for the findings: at most one for each object. It removes a reference to an absent
// owner only if another owner keeps the object, as the collector does (R9). Otherwise the object is garbage,
// and the user must decide whether it stays.
func Fixes(inv *inventory.Inventory, findings []Finding) []Fix {
	g := inv.Graph()
	byObject := make(map[ownership.UID][]Finding)
	var order []ownership.UID
	for i := range findings {
		f := findings[i]
		if f.Owner == nil {
			continue
		}
		if _, ok := byObject[f.Object.UID]; !ok {
			order = append(order, f.Object.UID)
		}
		byObject[f.Object.UID] = append(byObject[f.Object.UID], f)
	}
	var fixes []Fix
	for _, uid := range order {
		facts, ok := verdict.Gather(g, uid)
		if !ok || facts.Object.Phase != ownership.Active {
			continue
		}
		fix, ok := fixOf(facts, byObject[uid])
		if ok {
			fixes = append(fixes, fix)
		}
	}
	slices.SortFunc(fixes, func(a, b Fix) int { return compareFindings(Finding{Object: a.Object}, Finding{Object: b.Object}) })
	return fixes
}

// fixOf plans the fix of an object; false if nothing can be fixed.
func fixOf(facts verdict.Facts, findings []Finding) (Fix, bool) {
	hasSolid := slices.ContainsFunc(facts.Owners, func(o verdict.Owner) bool { return o.Standing == verdict.Solid })
	fix := Fix{Object: findings[0].Object}
	for i := range findings {
		f := findings[i]
		owner := facts.Owners[f.Owner.Index]
		switch f.Code {
		case WrongNamespace, WrongScope, WrongKind, WrongName:
			fix.Removes = append(fix.Removes, f)
		case Duplicate:
			if repeats(facts.Owners[:f.Owner.Index], owner.Reference) {
				fix.Removes = append(fix.Removes, f)
			}
		case OwnerAbsent, OwnerReplaced:
			if hasSolid {
				fix.Removes = append(fix.Removes, f)
				fix.Absent = append(fix.Absent, owner.Claim)
			}
		default: // the user has to decide
		}
	}
	slices.SortFunc(fix.Removes, func(a, b Finding) int { return a.Owner.Index - b.Owner.Index })
	return fix, len(fix.Removes) > 0 && staysWithout(facts, fix.Removes)
}

// repeats reports whether a reference is the same as an earlier one, flags included.
func repeats(earlier []verdict.Owner, r ownership.Reference) bool {
	return slices.ContainsFunc(earlier, func(o verdict.Owner) bool { return o.Reference == r })
}

// staysWithout reports whether the collector's own rules keep an object without some of its references. A
// reference of the wrong scope keeps an object (R5), and may be the only one that does.
func staysWithout(facts verdict.Facts, removes []Finding) bool {
	var remaining []verdict.Owner
	for n := range facts.Owners {
		if !slices.ContainsFunc(removes, func(f Finding) bool { return f.Owner.Index == n }) {
			remaining = append(remaining, facts.Owners[n])
		}
	}
	facts.Owners = remaining
	switch verdict.Decide(facts).(type) {
	case verdict.Keep, verdict.Detach:
		return true
	case verdict.Delete, verdict.Verify, verdict.Park, verdict.Reread, verdict.Disown, verdict.Await, verdict.Unblock, verdict.RemoveFinalizer:
		return false
	}
	return false
}

// operation is an operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Patch returns the fix as a JSON patch. The server refuses it unless the object has the UID and the
// resourceVersion that were read (R12).
func (f Fix) Patch() ([]byte, error) {
	operations := []operation{
		{Op: "test", Path: "/metadata/uid", Value: f.Object.UID},
		{Op: "test", Path: "/metadata/resourceVersion", Value: f.Object.ResourceVersion},
	}
	for _, wrong := range slices.Backward(f.Removes) { // from the end, so that the indexes of the others stay
		path := fmt.Sprintf("/metadata/ownerReferences/%d", wrong.Owner.Index)
		operations = append(operations, operation{Op: "test", Path: path + "/uid", Value: wrong.Owner.UID}, operation{Op: "remove", Path: path})
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("encode the patch of %s: %w", f.Object, err)
	}
	return patch, nil
}
