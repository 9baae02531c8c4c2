package cli

import (
	"bytes"
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
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// ownedByA returns the metadata of a dependent of the ConfigMap a.
func ownedByA(name string, uid types.UID) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: uid, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "a"}}}
}

// The backup of a later attempt has what that attempt has found, and nothing that somebody else has removed or detached since the
// last one: the DELETE of that attempt was refused. It has more only if the attempt cannot see the objects, or if the DELETE may
// have taken effect.
func TestBackupDoesNotGrowWithAttempts(t *testing.T) {
	detach := func(resource string, name string) func(*wireserver.Server, *unlisted) {
		return func(s *wireserver.Server, _ *unlisted) {
			s.Put(resource, metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)})
		}
	}
	remove := func(resource, name string) func(*wireserver.Server, *unlisted) {
		return func(s *wireserver.Server, _ *unlisted) { s.Remove(resource, types.UID(name)) }
	}
	replace := func(resource, name string) func(*wireserver.Server, *unlisted) {
		return func(s *wireserver.Server, _ *unlisted) {
			s.Remove(resource, types.UID(name))
			s.Put(resource, ownedByA(name, "new"))
		}
	}
	hide := func(change func(*wireserver.Server, *unlisted)) func(*wireserver.Server, *unlisted) {
		return func(s *wireserver.Server, u *unlisted) {
			change(s, u)
			u.code = http.StatusForbidden
		}
	}
	hideAll := func(change func(*wireserver.Server, *unlisted)) func(*wireserver.Server, *unlisted) {
		return hide(func(s *wireserver.Server, u *unlisted) {
			change(s, u)
			u.unread = true
		})
	}
	nothing := func(*wireserver.Server, *unlisted) {}
	for name, test := range map[string]struct {
		code    int // of the lists of Secrets, before the change
		cascade string
		change  func(*wireserver.Server, *unlisted)
		inDoubt bool
		want    []string // the UIDs of the objects, with those of their owners
	}{
		"nothing":                              {http.StatusForbidden, "background", nothing, false, []string{"a", "b/a"}},
		"detached":                             {http.StatusForbidden, "background", detach("configmaps", "b"), false, []string{"a"}},
		"removed":                              {http.StatusForbidden, "background", remove("configmaps", "b"), false, []string{"a"}},
		"replaced":                             {http.StatusForbidden, "background", replace("configmaps", "b"), false, []string{"a", "new/a"}},
		"orphan, detached":                     {http.StatusForbidden, "orphan", detach("configmaps", "b"), false, []string{"a"}},
		"in doubt, detached":                   {http.StatusForbidden, "background", detach("configmaps", "b"), true, []string{"a"}},
		"in doubt, removed":                    {http.StatusForbidden, "background", remove("configmaps", "b"), true, []string{"a", "b/a"}},
		"in doubt, replaced":                   {http.StatusForbidden, "background", replace("configmaps", "b"), true, []string{"a", "new/a"}},
		"in doubt, orphan, detached":           {http.StatusForbidden, "orphan", detach("configmaps", "b"), true, []string{"a", "b/a"}},
		"hidden":                               {http.StatusOK, "background", hide(nothing), false, []string{"a", "b/a", "s/a"}},
		"hidden, detached":                     {http.StatusOK, "background", hide(detach("secrets", "s")), false, []string{"a", "b/a", "s"}},
		"hidden, removed":                      {http.StatusOK, "background", hide(remove("secrets", "s")), false, []string{"a", "b/a"}},
		"hidden, replaced":                     {http.StatusOK, "background", hide(replace("secrets", "s")), false, []string{"a", "b/a"}},
		"hidden, and another kind is detached": {http.StatusOK, "background", hide(detach("configmaps", "b")), false, []string{"a", "s/a"}},
		"hidden, in doubt, removed":            {http.StatusOK, "background", hide(remove("secrets", "s")), true, []string{"a", "b/a", "s/a"}},
		"unreadable":                           {http.StatusOK, "background", hideAll(remove("secrets", "s")), false, []string{"a", "b/a", "s/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, _ := unlistedCluster(t, http.StatusOK)
			cluster.Put("configmaps", ownedByA("b", "b"))
			cluster.Put("secrets", ownedByA("s", "s"))
			handler := &unlisted{Handler: cluster, code: test.code}
			f := backedUp(atHome(t), handler)
			f.cascade = test.cascade
			*f.cluster.kube.Namespace = "shop"
			keepAttempts(t, &f, "configmaps/a", 3, func() {
				test.change(cluster, handler)
				f.backup.isNeeded = test.inDoubt
			})
			expectKept(t, &f, test.want)
		})
	}
}

// expectKept checks the UIDs of the objects of a backup, with those of their owners.
func expectKept(t *testing.T, f *previewFlags, want []string) {
	t.Helper()
	content, err := readBackup(f.backup.file, f.backup.key)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, kept := range content.Kept {
		uid := string(kept.UID())
		for _, owner := range kept.Object.GetOwnerReferences() {
			uid += "/" + string(owner.UID)
		}
		got = append(got, uid)
	}
	if slices.Sort(got); !slices.Equal(got, want) || len(content.Lacks) > 1 {
		t.Errorf("the backup has %q, and lacks %q; want %q", got, content.Lacks, want)
	}
}

// A preview lists the dependents of a hidden object, but does not know that the deletion removes them. The backup keeps the
// dependents that still belong to the object, directly or indirectly, and no others.
func TestBackupKeepsDependentsOfHiddenObjects(t *testing.T) {
	object := func(name string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), OwnerReferences: owners}
	}
	ownerA, ownerB, ownerS := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "a"}, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "b", UID: "b"}, metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "s", UID: "s"}
	ending := object("b")
	ending.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	all := []string{"a", "b/s", "c/b", "s/a"}
	for name, test := range map[string]struct {
		change        func(*wireserver.Server, *unlisted)
		want, inDoubt []string // without and with a DELETE in doubt
	}{
		"nothing":                         {func(*wireserver.Server, *unlisted) {}, all, all},
		"the hidden object is unreadable": {func(_ *wireserver.Server, u *unlisted) { u.unread = true }, all, all},
		"the hidden object is detached": {
			func(s *wireserver.Server, _ *unlisted) { s.Put("secrets", object("s")) },
			[]string{"a", "b/s", "c/b", "s"},
			[]string{"a", "b/s", "c/b", "s"},
		},
		"the hidden object is removed": {func(s *wireserver.Server, _ *unlisted) { s.Remove("secrets", "s") }, []string{"a"}, all},
		"the hidden object is replaced": {func(s *wireserver.Server, _ *unlisted) {
			s.Remove("secrets", "s")
			s.Put("secrets", metav1.ObjectMeta{Namespace: "shop", Name: "s", UID: "new", OwnerReferences: []metav1.OwnerReference{ownerA}})
		}, []string{"a"}, all},
		"its dependent is detached": {func(s *wireserver.Server, _ *unlisted) { s.Put("configmaps", object("b")) }, []string{"a", "s/a"}, []string{"a", "s/a"}},
		"its dependent is detached, and is being deleted": {
			func(s *wireserver.Server, _ *unlisted) { s.Put("configmaps", ending) },
			[]string{"a", "s/a"},
			[]string{"a", "b/s", "c/b", "s/a"},
		},
		"its dependent is removed":           {func(s *wireserver.Server, _ *unlisted) { s.Remove("configmaps", "b") }, []string{"a", "s/a"}, all},
		"its indirect dependent is detached": {func(s *wireserver.Server, _ *unlisted) { s.Put("configmaps", object("c")) }, []string{"a", "b/s", "s/a"}, []string{"a", "b/s", "s/a"}},
		"its dependent has another owner, which the deletion removes": {
			func(s *wireserver.Server, _ *unlisted) { s.Put("configmaps", object("b", ownerS, ownerA)) },
			[]string{"a", "b/s/a", "c/b", "s/a"},
			[]string{"a", "b/s/a", "c/b", "s/a"},
		},
	} {
		for inDoubt, want := range map[bool][]string{false: test.want, true: test.inDoubt} {
			t.Run(fmt.Sprintf("%s, in doubt: %t", name, inDoubt), func(t *testing.T) {
				cluster, _ := unlistedCluster(t, http.StatusOK)
				cluster.Put("secrets", object("s", ownerA))
				cluster.Put("configmaps", object("b", ownerS))
				cluster.Put("configmaps", object("c", ownerB))
				handler := &unlisted{Handler: cluster, code: http.StatusOK}
				f := backedUp(atHome(t), handler)
				*f.cluster.kube.Namespace = "shop"
				keepAttempts(t, &f, "configmaps/a", 3, func() {
					test.change(cluster, handler)
					handler.code, f.backup.isNeeded = http.StatusForbidden, inDoubt
				})
				expectKept(t, &f, want)
			})
		}
	}
}

// The number of hidden objects makes no difference, although a user who may not list them can only get each.
func TestBackupDoesNotGrowWithAttemptsOnManyHiddenObjects(t *testing.T) {
	cluster, _ := unlistedCluster(t, http.StatusOK)
	want := []string{"a", "s-01"}
	for n := range 50 {
		name := fmt.Sprintf("s-%02d", n)
		cluster.Put("secrets", ownedByA(name, types.UID(name)))
		if n > 1 {
			want = append(want, name+"/a")
		}
	}
	handler := &unlisted{Handler: cluster, code: http.StatusOK}
	f := backedUp(atHome(t), handler)
	*f.cluster.kube.Namespace = "shop"
	keepAttempts(t, &f, "configmaps/a", 3, func() {
		handler.code = http.StatusForbidden
		cluster.Remove("secrets", "s-00")
		cluster.Put("secrets", metav1.ObjectMeta{Namespace: "shop", Name: "s-01", UID: "s-01"})
	})
	expectKept(t, &f, want)
}

// unserved is a server that answers requests for single Secrets as one that does not serve them.
type unserved struct {
	http.Handler

	isAway bool
}

func (u *unserved) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if u.isAway && strings.Contains(r.URL.Path, "/secrets/") {
		http.NotFound(w, r)
		return
	}
	u.Handler.ServeHTTP(w, r)
}

// A hidden object is not gone because the server does not serve its kind for a moment.
func TestBackupKeepsHiddenObjectsOfAKindThatIsNotServed(t *testing.T) {
	cluster, _ := unlistedCluster(t, http.StatusOK)
	cluster.Put("secrets", ownedByA("s", "s"))
	lists := &unlisted{Handler: cluster, code: http.StatusOK}
	handler := &unserved{Handler: lists}
	f := backedUp(atHome(t), handler)
	*f.cluster.kube.Namespace = "shop"
	keepAttempts(t, &f, "configmaps/a", 3, func() {
		lists.code, handler.isAway = http.StatusForbidden, true
	})
	expectKept(t, &f, []string{"a", "s/a"})
}

// The resources that an attempt has not seen have names, or the names of their groups; the entry for the rest may be any. An
// attempt that has seen all needs other objects of the earlier backup after a doubt only.
func TestUnseenResourcesOfAnAttempt(t *testing.T) {
	k := keptWidget()
	for resource, want := range map[string]bool{"widgets.example.com": true, "example.com": true, "": true, "secrets": false, "widgets": false, "gadgets.example.com": false} {
		a := &attempt{unseen: []preview.UnseenReport{{Resource: resource, Says: "no"}}}
		if a.isUnseen(&k) != want || !a.needsEarlier() {
			t.Errorf("%q: %t, needs the earlier backup: %t", resource, a.isUnseen(&k), a.needsEarlier())
		}
	}
	for _, inDoubt := range []bool{true, false} {
		a := &attempt{inDoubt: inDoubt}
		if a.isUnseen(&k) || a.needsEarlier() != inDoubt {
			t.Errorf("without unseen resources, in doubt: %t: needs the earlier backup: %t", inDoubt, a.needsEarlier())
		}
	}
}

func keptWidget() undo.Kept {
	widget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"namespace": "shop", "name": "w", "uid": "w"}}}
	return undo.Kept{Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, Object: widget}
}

// A backup names what that of a DELETE in doubt has lacked. A refused DELETE has removed nothing of it.
func TestLacksOfAnEarlierBackup(t *testing.T) {
	const forbidden, down = "secrets in namespace shop: no list for you, 403", "secrets: no list for you, 500"
	for name, test := range map[string]struct {
		code    int // of the lists of Secrets in the second attempt
		inDoubt bool
		want    []string
	}{
		"seen now":              {http.StatusOK, false, nil},
		"in doubt, seen now":    {http.StatusOK, true, []string{forbidden}},
		"another error":         {http.StatusInternalServerError, false, []string{down}},
		"in doubt, another one": {http.StatusInternalServerError, true, []string{down, forbidden}},
		"in doubt, the same":    {http.StatusForbidden, true, []string{forbidden}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, _ := unlistedCluster(t, http.StatusOK)
			handler := &unlisted{Handler: cluster, code: http.StatusForbidden}
			f := backedUp(atHome(t), handler)
			f.backup.without = append(f.backup.without, "secrets")
			keepAttempts(t, &f, "namespaces/shop", 2, func() {
				handler.code, f.backup.isNeeded = test.code, test.inDoubt
			})
			content, err := readBackup(f.backup.file, f.backup.key)
			if err != nil || !slices.Equal(content.Lacks, test.want) {
				t.Errorf("%q, %v; want %q", content.Lacks, err, test.want)
			}
		})
	}
}

// keepAttempts writes the backups of some attempts to delete an object, with a change after the first one.
func keepAttempts(t *testing.T, f *previewFlags, target string, attempts int, change func()) {
	t.Helper()
	var out, errs bytes.Buffer
	s := Streams{Out: &out, Err: &errs}
	for n := range attempts {
		if n == 1 {
			change()
		}
		predicted, err := f.predict(t.Context(), []string{target}, s)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.keep(t.Context(), predicted.report, []string{target}, s); err != nil {
			t.Fatalf("%v\n%s", err, errs.String())
		}
	}
}

// What becomes of an object that only the earlier backup has, and that the attempt should have seen, after a DELETE in doubt; and
// of an object whose API does not answer.
func TestNeededObjectsOfAnEarlierBackup(t *testing.T) {
	k := keptWidget()
	stays := k
	stays.Stays = true
	kinds := map[schema.GroupKind]undo.Kind{k.Place().Kind: {}}
	with := func(e undo.Existing) undo.Cluster {
		return undo.Cluster{Kinds: kinds, Existing: map[undo.Place]undo.Existing{k.Place(): e}}
	}
	for name, test := range map[string]struct {
		k           undo.Kept
		found       undo.Cluster
		inDoubt, ok bool // is needed, if a DELETE is in doubt or without a doubt
	}{
		"it exists":             {k: k, found: with(undo.Existing{UID: "w"})},
		"it is being deleted":   {k: k, found: with(undo.Existing{UID: "w", Terminating: true}), inDoubt: true}, // by somebody else, without a doubt
		"it is replaced":        {k: k, found: with(undo.Existing{UID: "new"}), inDoubt: true},
		"it is gone":            {k: k, found: undo.Cluster{Kinds: kinds}, inDoubt: true},
		"its kind is gone":      {k: k, inDoubt: true},
		"its group is away":     {k: k, found: undo.Cluster{UnreadGroups: map[string]string{"example.com": "down"}}, inDoubt: true, ok: true},
		"it cannot be read":     {k: k, found: undo.Cluster{Kinds: kinds, Unread: map[undo.Place]string{k.Place(): "no"}}, inDoubt: true, ok: true},
		"it loses its owners":   {k: stays, found: with(undo.Existing{UID: "w"}), inDoubt: true},
		"it lost them, is gone": {k: stays, found: undo.Cluster{Kinds: kinds}, inDoubt: true},
	} {
		for inDoubt, want := range map[bool]bool{true: test.inDoubt, false: test.ok} {
			a := &attempt{found: test.found, inDoubt: inDoubt}
			if got := a.needed([]undo.Kept{test.k}, nil); (len(got) == 1) != want {
				t.Errorf("%s, in doubt: %t: %d objects", name, inDoubt, len(got))
			}
		}
	}
}
