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
	"github.com/coppice-dev/coppice/internal/tools/undo"
)

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
			replacement := ownedBy(name, "a")
			replacement.UID = "new"
			s.Put(resource, replacement)
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
		"in doubt, orphan, detached":           {http.StatusForbidden, "orphan", detach("configmaps", "b"), true, []string{"a", "b/a stays"}},
		"hidden":                               {http.StatusOK, "background", hide(nothing), false, []string{"a", "b/a", "s/a"}},
		"hidden, detached":                     {http.StatusOK, "background", hide(detach("secrets", "s")), false, []string{"a", "b/a"}},
		"hidden, orphan":                       {http.StatusOK, "orphan", hide(nothing), false, []string{"a", "b/a stays", "s/a stays"}},
		"hidden, in doubt, orphan, detached":   {http.StatusOK, "orphan", hide(detach("secrets", "s")), true, []string{"a", "b/a stays", "s/a stays"}},
		"hidden, removed":                      {http.StatusOK, "background", hide(remove("secrets", "s")), false, []string{"a", "b/a"}},
		"hidden, replaced":                     {http.StatusOK, "background", hide(replace("secrets", "s")), false, []string{"a", "b/a"}},
		"hidden, and another kind is detached": {http.StatusOK, "background", hide(detach("configmaps", "b")), false, []string{"a", "s/a"}},
		"hidden, in doubt, removed":            {http.StatusOK, "background", hide(remove("secrets", "s")), true, []string{"a", "b/a", "s/a"}},
		"unreadable":                           {http.StatusOK, "background", hideAll(remove("secrets", "s")), false, []string{"a", "b/a", "s/a earlier"}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, _ := unlistedCluster(t, http.StatusOK)
			cluster.Put("configmaps", ownedBy("b", "a"))
			cluster.Put("secrets", ownedBy("s", "a"))
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

// expectKept checks the objects of a backup, as describeKept describes them.
func expectKept(t *testing.T, f *previewFlags, want []string) {
	t.Helper()
	content, err := readBackup(f.backup.file, f.backup.key)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, kept := range content.Kept {
		got = append(got, describeKept(kept))
	}
	if slices.Sort(got); !slices.Equal(got, want) || len(content.Lacks) > 1 {
		t.Errorf("the backup has %q, and lacks %q; want %q", got, content.Lacks, want)
	}
}

// describeKept returns the UIDs of an object and its owners, and what else undo knows about it.
func describeKept(k undo.Kept) string {
	text := string(k.UID())
	for _, owner := range k.Object.GetOwnerReferences() {
		text += "/" + string(owner.UID)
	}
	if k.Stays {
		text += " stays"
	}
	if k.Earlier {
		text += " earlier"
	}
	return text
}

// A preview lists the dependents of a hidden object, but does not know that the deletion removes them. The backup keeps those that
// belong to an object of one of the backups, and no others.
func TestBackupKeepsDependentsOfHiddenObjects(t *testing.T) {
	ending := ownedBy("b")
	ending.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	all := []string{"a", "b/s", "c/b", "s/a"}
	put := func(resource string, meta metav1.ObjectMeta) func(*wireserver.Server, *unlisted) {
		return func(s *wireserver.Server, _ *unlisted) { s.Put(resource, meta) }
	}
	remove := func(resource string, uid types.UID) func(*wireserver.Server, *unlisted) {
		return func(s *wireserver.Server, _ *unlisted) { s.Remove(resource, uid) }
	}
	for name, test := range map[string]struct {
		change        func(*wireserver.Server, *unlisted)
		want, inDoubt []string // without and with a DELETE in doubt
	}{
		"nothing": {func(*wireserver.Server, *unlisted) {}, all, all},
		"the hidden object is unreadable": {
			func(_ *wireserver.Server, u *unlisted) { u.unread = true },
			[]string{"a", "b/s", "c/b", "s/a earlier"},
			[]string{"a", "b/s", "c/b", "s/a earlier"},
		},
		"the hidden object is detached":      {put("secrets", ownedBy("s")), []string{"a"}, []string{"a"}},
		"the hidden object is removed":       {remove("secrets", "s"), []string{"a"}, all},
		"its dependent is detached":          {put("configmaps", ownedBy("b")), []string{"a", "s/a"}, []string{"a", "s/a"}},
		"its dependent is being deleted":     {put("configmaps", ending), []string{"a", "s/a"}, []string{"a", "b/s earlier", "c/b", "s/a"}},
		"its dependent is removed":           {remove("configmaps", "b"), []string{"a", "s/a"}, all},
		"its indirect dependent is detached": {put("configmaps", ownedBy("c")), []string{"a", "b/s", "s/a"}, []string{"a", "b/s", "s/a"}},
		"its dependent has another owner, which the deletion removes": {
			put("configmaps", ownedBy("b", "s", "a")),
			[]string{"a", "b/s/a", "c/b", "s/a"},
			[]string{"a", "b/s/a", "c/b", "s/a"},
		},
	} {
		for inDoubt, want := range map[bool][]string{false: test.want, true: test.inDoubt} {
			t.Run(fmt.Sprintf("%s, in doubt: %t", name, inDoubt), func(t *testing.T) {
				cluster, _ := unlistedCluster(t, http.StatusOK)
				cluster.Put("secrets", ownedBy("s", "a"))
				cluster.Put("configmaps", ownedBy("b", "s"))
				cluster.Put("configmaps", ownedBy("c", "b"))
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

// An attempt that cannot see everything does not know that an object stays: its other owner may go by a way that is hidden.
func TestVisibleObjectThatMayGoDoesNotStay(t *testing.T) {
	cluster, _ := unlistedCluster(t, http.StatusOK)
	cluster.Put("secrets", ownedBy("s"))
	cluster.Put("configmaps", ownedBy("x", "s"))
	cluster.Put("configmaps", ownedBy("d", "a", "x"))
	handler := &unlisted{Handler: cluster, code: http.StatusOK}
	f := backedUp(atHome(t), handler)
	*f.cluster.kube.Namespace = "shop"
	keepAttempts(t, &f, "configmaps/a", 1, nil)
	expectKept(t, &f, []string{"a", "d/a/x stays"})
	cluster.Put("secrets", ownedBy("s", "a"))
	handler.code = http.StatusForbidden
	keepAttempts(t, &f, "configmaps/a", 2, func() {})
	expectKept(t, &f, []string{"a", "d/a/x"})
}

// ownedBy returns the metadata of an object in the namespace shop with owners; those of which the name begins with s are Secrets.
func ownedBy(name string, owners ...string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}
	for _, owner := range owners {
		kind := "ConfigMap"
		if strings.HasPrefix(owner, "s") {
			kind = "Secret"
		}
		meta.OwnerReferences = append(meta.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: owner, UID: types.UID(owner)})
	}
	return meta
}

// If the preview cannot follow the owners of an object, it stays by the new backup, and goes by the earlier one: it may go, as do its
// dependents.
func TestObjectThatMayGoDoesNotStay(t *testing.T) {
	cluster, _ := unlistedCluster(t, http.StatusOK)
	cluster.Put("secrets", ownedBy("s", "a"))
	cluster.Put("configmaps", ownedBy("b", "s"))
	cluster.Put("configmaps", ownedBy("d", "a", "b"))
	cluster.Put("configmaps", ownedBy("e", "d"))
	handler := &unlisted{Handler: cluster, code: http.StatusOK}
	f := backedUp(atHome(t), handler)
	*f.cluster.kube.Namespace = "shop"
	keepAttempts(t, &f, "configmaps/a", 3, func() { handler.code = http.StatusForbidden })
	expectKept(t, &f, []string{"a", "b/s", "d/a/b", "e/d", "s/a"})
}

// The number of hidden objects makes no difference, although a user who may not list them can only get each.
func TestBackupDoesNotGrowWithAttemptsOnManyHiddenObjects(t *testing.T) {
	cluster, _ := unlistedCluster(t, http.StatusOK)
	want := []string{"a"}
	for n := range 50 {
		name := fmt.Sprintf("s-%02d", n)
		cluster.Put("secrets", ownedBy(name, "a"))
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

// unreadable is a server that answers requests for single Secrets with a code, and a text that is not about the object; 0 for the object.
type unreadable struct {
	http.Handler

	code int
}

func (u *unreadable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if u.code != 0 && strings.Contains(r.URL.Path, "/secrets/") {
		http.Error(w, "the server cannot answer", u.code)
		return
	}
	u.Handler.ServeHTTP(w, r)
}

// A hidden object is not gone because the server does not serve its kind for a moment.
func TestBackupKeepsHiddenObjectsOfAKindThatIsNotServed(t *testing.T) {
	cluster, _ := unlistedCluster(t, http.StatusOK)
	cluster.Put("secrets", ownedBy("s", "a"))
	lists := &unlisted{Handler: cluster, code: http.StatusOK}
	handler := &unreadable{Handler: lists}
	f := backedUp(atHome(t), handler)
	*f.cluster.kube.Namespace = "shop"
	keepAttempts(t, &f, "configmaps/a", 3, func() {
		lists.code, handler.code = http.StatusForbidden, http.StatusNotFound
	})
	expectKept(t, &f, []string{"a", "s/a earlier"})
}

func keptWidget() undo.Kept {
	widget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"namespace": "shop", "name": "w", "uid": "w"}}}
	return undo.Kept{Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, Object: widget}
}

// A backup names what the earlier one has lacked, unless it needs nothing of it.
func TestLacksOfAnEarlierBackup(t *testing.T) {
	const forbidden, down = "secrets in namespace shop: no list for you, 403", "secrets: no list for you, 500"
	for name, test := range map[string]struct {
		code    int // of the lists of Secrets in the second attempt
		inDoubt bool
		want    []string
	}{
		"seen now":              {http.StatusOK, false, nil},
		"in doubt, seen now":    {http.StatusOK, true, []string{forbidden}},
		"another error":         {http.StatusInternalServerError, false, []string{down, forbidden}},
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

// keepAttempts writes the backups of some attempts to delete an object, with a change after the first one. It returns what they say.
func keepAttempts(t *testing.T, f *previewFlags, target string, attempts int, change func()) (said string) {
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
	return errs.String()
}

// What becomes of an object that only the earlier backup has, without a doubt about a DELETE and with one.
func TestNeededObjectsOfAnEarlierBackup(t *testing.T) {
	now := func(change func(*unstructured.Unstructured)) *unstructured.Unstructured {
		o := keptWidget().Object
		o.SetOwnerReferences(ownedBy("w", "s").OwnerReferences)
		change(o)
		return o
	}
	owners := func(names ...string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) { o.SetOwnerReferences(ownedBy("w", names...).OwnerReferences) }
	}
	ending := func(o *unstructured.Unstructured) { o.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)}) }
	for name, test := range map[string]struct {
		stays         bool
		attempt       attempt
		present       *unstructured.Unstructured
		isUnread      bool
		want, inDoubt string // the object, and whether the backup needs it
	}{
		"it exists":                 {present: now(owners("s")), want: "w/s, with its owner", inDoubt: "w/s, with its owner"},
		"it has other owners":       {present: now(owners("x")), want: "w/x, with its owner", inDoubt: "w/x, with its owner"},
		"it is being deleted":       {present: now(ending), want: "w/s, with its owner", inDoubt: "w/s earlier, always"},
		"it is replaced":            {present: now(func(o *unstructured.Unstructured) { o.SetUID("new") }), want: "w/s, never", inDoubt: "w/s, always"},
		"it is gone":                {want: "w/s, never", inDoubt: "w/s, always"},
		"it cannot be read":         {isUnread: true, want: "w/s earlier, always", inDoubt: "w/s earlier, always"},
		"it stays, and all is seen": {stays: true, present: now(owners("x")), want: "w/x stays, with its owner", inDoubt: "w/x/s stays, always"},
		"it stayed, and is gone":    {stays: true, want: "w/s, never", inDoubt: "w/s, always"},
		"it stayed, and may go":     {stays: true, attempt: attempt{isBlind: true}, present: now(owners("x")), want: "w/x, with its owner", inDoubt: "w/x/s, always"},
		"it is a dependent of another object than the orphaned one": {stays: true, attempt: attempt{isBlind: true, orphaned: map[types.UID]bool{"a": true}}, present: now(owners("s")), want: "w/s, with its owner", inDoubt: "w/s, always"},
		"an orphan": {stays: true, attempt: attempt{isBlind: true, orphaned: map[types.UID]bool{"s": true}}, present: now(owners()), want: "w stays, with its owner", inDoubt: "w/s stays, always"},
	} {
		for inDoubt, want := range map[bool]string{false: test.want, true: test.inDoubt} {
			k := keptWidget()
			owners("s")(k.Object)
			k.Stays = test.stays
			a := test.attempt
			a.inDoubt = inDoubt
			object, needs := a.needed(k, test.present.DeepCopy(), test.isUnread)
			got := describeKept(object) + map[necessity]string{needsNever: ", never", needsAlways: ", always", needsWithOwner: ", with its owner"}[needs]
			if got != want {
				t.Errorf("%s, in doubt: %t: %q, want %q", name, inDoubt, got, want)
			}
		}
	}
}

// The deletion may remove an object that belongs to nothing in the earlier backup: the Endpoints of a Service have no reference to it, and
// some owners are not kept. Such an object is needed for as long as it exists, one that was detached is not.
func TestObjectsThatBelongToNothingAreNeeded(t *testing.T) {
	widget := func(name string, owners ...string) undo.Kept {
		k := keptWidget()
		k.Object.SetName(name)
		k.Object.SetUID(types.UID(name))
		k.Object.SetOwnerReferences(ownedBy("", owners...).OwnerReferences)
		return k
	}
	root, follower, foreign, owned := widget("root"), widget("follower"), widget("foreign", "lease"), widget("owned", "root")
	found := present{objects: map[undo.Place]*unstructured.Unstructured{}}
	for _, k := range []undo.Kept{follower, widget("foreign"), widget("owned")} {
		found.objects[k.Place()] = k.Object
	}
	candidates := []undo.Kept{follower, foreign, owned}
	var got []string
	for _, k := range (attempt{isBlind: true}).stillNeeded(candidates, append(candidates, root), []undo.Kept{root}, found) {
		got = append(got, describeKept(k))
	}
	if want := []string{"follower", "foreign"}; !slices.Equal(got, want) {
		t.Errorf("%q are needed, want %q", got, want)
	}
}

// A chain of owners is followed to its end, whatever the order of the objects is. Objects also belong to their namespace and to their
// definition.
func TestAttachedObjects(t *testing.T) {
	const long = 300
	chain := make([]undo.Kept, long)
	for n := range chain {
		chain[n] = keptWidget()
		o := chain[n].Object
		o.SetName(fmt.Sprintf("c-%d", n))
		o.SetUID(types.UID(o.GetName()))
		o.SetOwnerReferences(ownedBy("", fmt.Sprintf("c-%d", n+1)).OwnerReferences)
	}
	cycle := []undo.Kept{keptWidget(), keptWidget()}
	for n, k := range cycle {
		k.Object.SetUID(types.UID(fmt.Sprintf("cycle-%d", n)))
		k.Object.SetNamespace("")
		k.Object.SetOwnerReferences(ownedBy("", fmt.Sprintf("cycle-%d", 1-n)).OwnerReferences)
	}
	if alone, owned := len(attached(cycle, nil)), len(attached(cycle, cycle[:1])); alone != 0 || owned != 2 {
		t.Errorf("%d objects that own each other belong to nothing, and %d to one of them", alone, owned)
	}
	kept := func(kind, name string) []undo.Kept {
		return []undo.Kept{{Object: &unstructured.Unstructured{Object: map[string]any{"apiVersion": kind[:strings.LastIndex(kind, "/")], "kind": kind[strings.LastIndex(kind, "/")+1:], "metadata": map[string]any{"name": name, "uid": name}}}}}
	}
	for name, test := range map[string]struct {
		kept []undo.Kept
		want int
	}{
		"the last owner":     {kept("v1/ConfigMap", fmt.Sprintf("c-%d", long)), long},
		"an owner":           {kept("v1/ConfigMap", fmt.Sprintf("c-%d", long/2)), long / 2},
		"nothing":            {nil, 0},
		"another object":     {kept("v1/ConfigMap", "shop"), 0},
		"their namespace":    {kept("v1/Namespace", "shop"), long},
		"another namespace":  {kept("v1/Namespace", "other"), 0},
		"their definition":   {kept("apiextensions.k8s.io/v1/CustomResourceDefinition", "widgets.example.com"), long},
		"another definition": {kept("apiextensions.k8s.io/v1/CustomResourceDefinition", "gadgets.example.com"), 0},
	} {
		if got := len(attached(slices.Clone(chain), test.kept)); got != test.want {
			t.Errorf("%s: %d objects, want %d", name, got, test.want)
		}
	}
}

// An object that has changed since the last attempt has its present contents, unless a DELETE that may have taken effect has begun to
// remove it: undo would leave out a pod that has ended.
func TestPresentContentsOfATerminatingObject(t *testing.T) {
	for _, inDoubt := range []bool{false, true} {
		earlier, now := keptWidget(), keptWidget()
		earlier.Object.SetLabels(map[string]string{"content": "old"})
		now.Object.SetLabels(map[string]string{"content": "new"})
		now.Object.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
		kept, want := []undo.Kept{now}, map[bool]string{false: "new", true: "old"}[inDoubt]
		if rest := (attempt{inDoubt: inDoubt}).combine(kept, []undo.Kept{earlier}); len(rest) != 0 || kept[0].Object.GetLabels()["content"] != want || kept[0].Earlier != inDoubt {
			t.Errorf("in doubt: %t: %v, and %d objects of the earlier backup alone", inDoubt, kept[0].Object, len(rest))
		}
	}
}

// The backup has the present contents of an object that the attempt cannot list, as of one that it can. If it cannot read them, it has
// those of the last attempt, and says so for as long as that is true.
func TestBackupHasThePresentContentsOfHiddenObjects(t *testing.T) {
	cluster, _ := unlistedCluster(t, http.StatusOK)
	secret := ownedBy("s", "a")
	secret.Labels = map[string]string{"content": "old"}
	cluster.Put("secrets", secret)
	lists := &unlisted{Handler: cluster, code: http.StatusOK}
	handler := &unreadable{Handler: lists}
	f := backedUp(atHome(t), handler)
	*f.cluster.kube.Namespace = "shop"
	keepAttempts(t, &f, "configmaps/a", 1, nil)
	lists.code = http.StatusForbidden
	secret.Labels = map[string]string{"content": "new"}
	cluster.Put("secrets", secret)
	for _, code := range []int{http.StatusInternalServerError, 0} {
		handler.code = code
		isAway := code != 0
		said := keepAttempts(t, &f, "configmaps/a", 1, nil)
		content, err := readBackup(f.backup.file, f.backup.key)
		if err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{false: "new", true: "old"}[isAway]
		at := slices.IndexFunc(content.Kept, func(k undo.Kept) bool { return k.UID() == "s" })
		if at < 0 || content.Kept[at].Object.GetLabels()["content"] != want || content.Kept[at].Earlier != isAway {
			t.Errorf("away: %t: the backup has %v", isAway, content.Kept)
		}
		if strings.Contains(said, "kept with the contents of an earlier attempt: Secret shop/s\n") != isAway {
			t.Errorf("away: %t: the command says %q", isAway, said)
		}
	}
}
