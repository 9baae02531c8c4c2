package cli

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/testing/wireserver"
	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// ownedBy returns the metadata of an object in the namespace shop with owners; those of which the name begins with s are Secrets.
func ownedBy(name string, owners ...string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}
	for _, owner := range owners {
		kind := "ConfigMap"
		if owner == "s" {
			kind = "Secret"
		}
		meta.OwnerReferences = append(meta.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: owner, UID: types.UID(owner)})
	}
	return meta
}

// An object that stayed at the last attempt, because of another owner, does not stay once that owner is lost: undo creates it again.
// The backup says that it may lack its dependents. Dependents that a deletion with the policy orphan keeps stay in any case.
func TestObjectThatLosesItsOtherOwnerDoesNotStay(t *testing.T) {
	stay := []string{"a", "d/s/x stays", "e/d/s stays", "s/a"}
	for name, test := range map[string]struct {
		cascade       string
		change        func(*wireserver.Server)
		want, inDoubt []string
		lacks         []string
	}{
		"nothing": {"background", func(*wireserver.Server) {}, stay, stay, nil},
		"it loses the reference": {
			"background", func(s *wireserver.Server) { s.Put("configmaps", ownedBy("d", "s")) },
			[]string{"a", "d/s", "e/d/s", "s/a"},
			[]string{"a", "d/s", "e/d/s", "s/a"},
			[]string{"dependents of ConfigMap shop/d, which stayed at the last attempt", "dependents of ConfigMap shop/e, which stayed at the last attempt"},
		},
		"the owner is removed": {
			"background", func(s *wireserver.Server) { s.Remove("configmaps", "x") },
			[]string{"a", "d/s/x", "e/d/s", "s/a"},
			[]string{"a", "d/s/x", "e/d/s", "s/a"},
			[]string{"dependents of ConfigMap shop/d, which stayed at the last attempt", "dependents of ConfigMap shop/e, which stayed at the last attempt"},
		},
		"its dependent loses the reference to it": {
			"background", func(s *wireserver.Server) { s.Put("configmaps", ownedBy("e", "s")) },
			[]string{"a", "d/s/x stays", "e/s", "s/a"},
			[]string{"a", "d/s/x stays", "e/s", "s/a"},
			[]string{"dependents of ConfigMap shop/e, which stayed at the last attempt"},
		},
		"it loses the other references": {
			"background", func(s *wireserver.Server) { s.Put("configmaps", ownedBy("d", "x")) },
			[]string{"a", "e/d/s stays", "s/a"},
			[]string{"a", "d/x/s stays", "e/d/s stays", "s/a"},
			nil,
		},
		"orphan": {"orphan", func(*wireserver.Server) {}, []string{"a", "s/a stays"}, []string{"a", "s/a stays"}, nil},
	} {
		for inDoubt, want := range map[bool][]string{false: test.want, true: test.inDoubt} {
			t.Run(fmt.Sprintf("%s, in doubt: %t", name, inDoubt), func(t *testing.T) {
				cluster, _ := unlistedCluster(t, http.StatusOK)
				cluster.Put("secrets", ownedBy("s", "a"))
				cluster.Put("configmaps", ownedBy("x"))
				cluster.Put("configmaps", ownedBy("d", "s", "x"))
				cluster.Put("configmaps", ownedBy("e", "d", "s"))
				handler := &unlisted{Handler: cluster, code: http.StatusOK}
				f := backedUp(atHome(t), handler)
				f.cascade, *f.cluster.kube.Namespace = test.cascade, "shop"
				keepAttempts(t, &f, "configmaps/a", 2, func() {
					test.change(cluster)
					handler.code, f.backup.isNeeded = http.StatusForbidden, inDoubt
				})
				content, err := readBackup(f.backup.file, f.backup.key)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, kept := range content.Kept {
					got = append(got, describeKept(kept))
				}
				if slices.Sort(got); !slices.Equal(got, want) {
					t.Errorf("the backup has %q, want %q", got, want)
				}
				if lacks := content.Lacks[1:]; !slices.Equal(lacks, test.lacks) {
					t.Errorf("the backup lacks %q, want %q", lacks, test.lacks)
				}
			})
		}
	}
}

// describeKept returns the UIDs of an object and its owners, and whether the object stays.
func describeKept(k undo.Kept) string {
	text := string(k.UID())
	for _, owner := range k.Object.GetOwnerReferences() {
		text += "/" + string(owner.UID)
	}
	if k.Stays {
		text += " stays"
	}
	return text
}

// contentless is a server that does not answer requests for whole Secrets, but those for their metadata.
type contentless struct {
	http.Handler

	isAway bool
}

func (c *contentless) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c.isAway && strings.Contains(r.URL.Path, "/secrets/") && !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
		http.Error(w, "the webhook is away", http.StatusInternalServerError)
		return
	}
	c.Handler.ServeHTTP(w, r)
}

// The backup has the present contents of an object that the attempt cannot list, as of one that it can. If it cannot read them, it has
// those of the last attempt, and says so.
func TestBackupHasThePresentContentsOfHiddenObjects(t *testing.T) {
	for name, test := range map[string]struct {
		isAway bool
		want   string
	}{
		"read":   {false, "new"},
		"unread": {true, "old"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, _ := unlistedCluster(t, http.StatusOK)
			secret := ownedBy("s", "a")
			secret.Labels = map[string]string{"content": "old"}
			cluster.Put("secrets", secret)
			lists := &unlisted{Handler: cluster, code: http.StatusOK}
			handler := &contentless{Handler: lists}
			f := backedUp(atHome(t), handler)
			*f.cluster.kube.Namespace = "shop"
			keepAttempts(t, &f, "configmaps/a", 3, func() {
				lists.code, handler.isAway = http.StatusForbidden, test.isAway
				secret.Labels = map[string]string{"content": "new"}
				cluster.Put("secrets", secret)
			})
			content, err := readBackup(f.backup.file, f.backup.key)
			if err != nil {
				t.Fatal(err)
			}
			at := slices.IndexFunc(content.Kept, func(k undo.Kept) bool { return k.UID() == "s" })
			if at < 0 || content.Kept[at].Object.GetLabels()["content"] != test.want {
				t.Errorf("the backup has %v", content.Kept)
			}
			isSaid := func(line string) bool {
				return strings.HasPrefix(line, "the present contents of Secret shop/s (it has those of the last attempt): ")
			}
			if slices.ContainsFunc(content.Lacks, isSaid) != test.isAway {
				t.Errorf("the backup lacks %q", content.Lacks)
			}
		})
	}
}

// An object that is being deleted keeps the finalizers and references that it had at the last attempt: the deletion removes them.
func TestPresentContentsOfATerminatingObject(t *testing.T) {
	earlier := keptWidget()
	earlier.Object.SetFinalizers([]string{"example.com/one", "example.com/two"})
	earlier.Object.SetOwnerReferences(ownedBy("w", "s").OwnerReferences)
	now := keptWidget().Object
	now.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
	now.SetFinalizers([]string{"example.com/two"})
	now.SetLabels(map[string]string{"content": "new"})
	k := earlier
	(&attempt{inDoubt: true}).replace(&k, now)
	if !slices.Equal(k.Finalizers, []string{"example.com/one", "example.com/two"}) || k.Object.GetLabels()["content"] != "new" || describeKept(k) != "w/s" {
		t.Errorf("%+v", k)
	}
}

// A chain of owners is followed to its end, whatever the order of the objects is.
func TestNeededChainOfOwners(t *testing.T) {
	const long = 1000
	found := undo.Cluster{Kinds: map[schema.GroupKind]undo.Kind{{Kind: "ConfigMap"}: {}}, Existing: map[undo.Place]undo.Existing{}}
	var candidates []undo.Kept
	for n := range long {
		meta := ownedBy(fmt.Sprintf("c-%d", n), fmt.Sprintf("c-%d", n+1))
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
		o.SetNamespace("shop")
		o.SetName(meta.Name)
		o.SetUID(meta.UID)
		o.SetOwnerReferences(meta.OwnerReferences)
		k := undo.Kept{Object: o}
		found.Existing[k.Place()] = undo.Existing{UID: k.UID(), Owners: meta.OwnerReferences}
		candidates = append(candidates, k)
	}
	root := keptWidget()
	root.Object.SetUID(types.UID(fmt.Sprintf("c-%d", long)))
	a := &attempt{found: found}
	if got := len(a.needed(candidates, []undo.Kept{root})); got != long {
		t.Errorf("%d objects are needed, want %d", got, long)
	}
	if got := len(a.needed(candidates, nil)); got != 0 {
		t.Errorf("%d objects are needed without their owner", got)
	}
}
