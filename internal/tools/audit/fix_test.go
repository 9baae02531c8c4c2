package audit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/tools/audit"
)

// TestFixesRemoveProvablyWrongReferences: provably wrong references are removed, unless that would delete the object.
func TestFixesRemoveProvablyWrongReferences(t *testing.T) {
	t.Parallel()
	const absent, solid, elsewhere = " owner=v1:ConfigMap:a:gone", " owner=apps/v1:ReplicaSet:web-1:r", " owner=v1:ConfigMap:e:e"
	for _, test := range []struct {
		name, object string
		want         string // the indexes to remove, then the claims to verify
	}{
		{"only an absent owner: garbage", "x pods default/x" + absent, ""},
		{"an absent owner beside a solid one", "x pods default/x" + absent + solid, "[0] ConfigMap default/a (gone)"},
		{"a replaced owner beside a solid one", "x pods default/x" + solid + " owner=v1:ConfigMap:c:gone", "[1] ConfigMap default/c (gone)"},
		{"an owner in another namespace", "x pods default/x" + elsewhere, "[0]"},
		{"beside an absent one: it would be deleted", "x pods default/x" + elsewhere + absent, ""},
		{"a namespaced owner of a cluster-scoped object", "x nodes x" + solid, "[0]"},
		{"it is all that keeps the object", "x nodes x" + solid + " owner=v1:Node:n2:gone", ""},
		{"wrong kind and name", "x pods default/x owner=apps/v1:Deployment:web-1:r owner=apps/v1:ReplicaSet:web-9:r", "[0 1]"},
		{"twice the same", "x pods default/x" + solid + solid, "[1]"},
		{"twice, one the controller: somebody has to decide", "x pods default/x" + solid + solid + ":c", ""},
		{"a kind that is not served", "x pods default/x owner=example.com/v1:Gadget:g:gone" + solid, ""},
		{"terminating", "x pods default/x" + elsewhere + " deleting=1m finalizer=example.com/f", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inv := cluster(t, append(healthy(), "c configmaps default/c", "e configmaps other/e", test.object)...)
			report := audit.Check(inv, audit.Options{})
			var got []string
			for _, fix := range audit.Fixes(inv, report.Findings) {
				var indexes []int
				for _, f := range fix.Removes {
					indexes = append(indexes, f.Owner.Index)
				}
				got = append(got, fmt.Sprint(indexes))
				for _, claim := range fix.Absent {
					got = append(got, claim.String())
				}
			}
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("fixes of %q (-want +got):\n%s", brief(report), diff)
			}
		})
	}
}

func TestPatchTestsWhatItRemoves(t *testing.T) {
	t.Parallel()
	inv := cluster(t, append(healthy(), "e configmaps other/e",
		"x pods default/x owner=v1:ConfigMap:e:e owner=apps/v1:ReplicaSet:web-1:r owner=apps/v1:ReplicaSet:web-9:r")...)
	fixes := audit.Fixes(inv, audit.Check(inv, audit.Options{}).Findings)
	if len(fixes) != 1 {
		t.Fatalf("fixes: %+v, want one", fixes)
	}
	got, err := fixes[0].Patch()
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"op":"test","path":"/metadata/uid","value":"x"},{"op":"test","path":"/metadata/resourceVersion","value":"7"},` +
		`{"op":"test","path":"/metadata/ownerReferences/2/uid","value":"r"},{"op":"remove","path":"/metadata/ownerReferences/2"},` +
		`{"op":"test","path":"/metadata/ownerReferences/0/uid","value":"e"},{"op":"remove","path":"/metadata/ownerReferences/0"}]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
}
