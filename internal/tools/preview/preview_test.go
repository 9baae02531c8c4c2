package preview_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// cluster makes an inventory from lines "KIND NAME [< OWNER[!]...] [# FINALIZER...] [@ NODE] [deleting]". KIND is one
// of kinds; all but cluster-scoped ones are in the namespace shop. An owner is given by its name, which is also its
// UID; ! stands for blockOwnerDeletion. deleting marks the object as terminating; always, cascading and outlives are
// its protection.
func cluster(t *testing.T, lines ...string) *inventory.Inventory {
	t.Helper()
	inv := &inventory.Inventory{Pods: map[ownership.UID]*inventory.Pod{}, Namespaces: map[ownership.UID]*corev1.Namespace{}}
	resources := map[string]*inventory.Resource{}
	for _, r := range []*inventory.Resource{
		{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"), Kind: "ConfigMap", Namespaced: true, Deletable: true},
		{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"), Kind: "Pod", Namespaced: true, Deletable: true},
		{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), Kind: "PersistentVolumeClaim", Namespaced: true, Deletable: true},
		{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("persistentvolumes"), Kind: "PersistentVolume", Deletable: true},
		{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces"), Kind: "Namespace", Deletable: true},
		{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("nodes"), Kind: "Node", Deletable: true},
		{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("serviceaccounts"), Kind: "ServiceAccount", Namespaced: true, Deletable: true},
		{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("services"), Kind: "Service", Namespaced: true, Deletable: true},
		{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("secrets"), Kind: "Secret", Namespaced: true, Deletable: true},
		{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("endpoints"), Kind: "Endpoints", Namespaced: true, Deletable: true},
		{GroupVersionResource: schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "volumeattributesclasses"}, Kind: "VolumeAttributesClass", Deletable: true},
		{GroupVersionResource: schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}, Kind: "Job", Namespaced: true, Deletable: true},
		{GroupVersionResource: schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}, Kind: "Role", Namespaced: true, Deletable: true},
		{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, Kind: "Widget", Namespaced: true, Deletable: true},
		{GroupVersionResource: schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, Kind: "CustomResourceDefinition", Deletable: true},
	} {
		inv.Resources = append(inv.Resources, r)
		resources[r.Kind] = r
	}
	kindOf := map[string]*inventory.Resource{}
	for _, line := range lines {
		words := strings.Fields(line)
		kindOf[words[1]] = resources[words[0]]
	}
	for n, line := range lines {
		words := strings.Fields(line)
		r := resources[words[0]]
		o := &inventory.Object{Resource: r}
		o.UID, o.Kind, o.Name, o.ResourceVersion = ownership.UID(words[1]), r.OwnerKind(), words[1], fmt.Sprint(n+1)
		if r.Namespaced {
			o.Namespace = "shop"
		}
		mode, deleting, node := "", false, ""
		for _, word := range words[2:] {
			switch {
			case word == "always" || word == "cascading" || word == "outlives":
				o.Protected, o.Labels = true, inventory.LabelsOf(map[string]string{protection.Label: word})
			case strings.Contains("<#@", word):
				mode = word
			case word == "deleting":
				deleting = true
			case mode == "#":
				o.Finalizers = append(o.Finalizers, word)
			case mode == "@":
				node = word
			default:
				name, blocks := strings.CutSuffix(word, "!")
				of := kindOf[name]
				if of == nil {
					of = resources["ConfigMap"]
				}
				reference := ownership.Reference{APIVersion: of.GroupVersion().String(), Kind: of.Kind, Name: name, UID: ownership.UID(name)}
				if blocks {
					reference.BlockOwnerDeletion = ownership.True
				}
				o.Owners = append(o.Owners, reference)
			}
		}
		o.Phase = ownership.PhaseOf(deleting, o.Finalizers)
		if r.Kind == "Pod" {
			inv.Pods[o.UID] = &inventory.Pod{Node: node, Grace: 30 * time.Second}
		}
		inv.Objects = append(inv.Objects, o)
	}
	slices.SortFunc(inv.Objects, func(a, b *inventory.Object) int {
		return cmp.Or(cmp.Compare(a.Resource.Group, b.Resource.Group), cmp.Compare(a.Resource.Resource, b.Resource.Resource), cmp.Compare(a.Name, b.Name))
	})
	inv.Index()
	return inv
}

// told returns a prediction in words, a line for each object, sorted by name.
func told(p preview.Prediction) []string {
	var lines []string
	for _, o := range p.Outcomes {
		line := string(o.Object.UID) + " " + string(o.Fate)
		if o.By != "" {
			line += " by " + string(o.By)
		}
		for _, w := range o.Waits {
			line += fmt.Sprintf(" for %s %s%v", w.Reason, w.Name, w.Objects)
		}
		if len(o.Lost) > 0 {
			line += fmt.Sprintf(" from %v", o.Lost)
		}
		if o.Fate == preview.Kept || o.Fate == preview.Detached {
			line += fmt.Sprintf(" by owners %v", o.KeptBy)
		}
		if o.Race {
			line += " in a race"
		}
		if o.Protected != "" {
			line += " protected"
		}
		if o.Refused != "" {
			line += " refused"
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

func requests(policy string, uids ...string) []preview.Request {
	var all []preview.Request
	for _, uid := range uids {
		all = append(all, preview.Request{UID: ownership.UID(uid), Propagation: metav1.DeletionPropagation(policy)})
	}
	return all
}

// NS-06: a group that does not answer may have objects in a namespace, which stays.
func TestGroupThatIsDown(t *testing.T) {
	inv := cluster(t, "Namespace shop", "ConfigMap a", "ConfigMap b # example.com/hold")
	inv.Unread = []inventory.Unread{{Resource: schema.GroupVersionResource{Group: "metrics.example.com", Version: "v1"}, Why: "no route to host"}}
	p := preview.New(inv).Predict(requests("Background", "shop"), preview.Options{})
	want := []string{
		"a Deleted by NamespaceController",
		"b Waiting by NamespaceController for Finalizer example.com/hold[]",
		"shop Waiting by User for Contents kubernetes[b] for Discovery metrics.example.com/v1[]",
	}
	if got := told(p); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if text := p.Report(inv).String(); !strings.Contains(text, "group metrics.example.com/v1 of the API, which does not answer") {
		t.Error(text)
	}
}

// A group that the collector knew before it stopped to answer holds namespaces only if there may be objects to delete in
// it; upstream's controller holds all of them (R22).
func TestGroupThatWasKnown(t *testing.T) {
	waiting, gone := "shop Waiting by User for Discovery metrics.example.com/v1[]", "shop Deleted by User"
	for name, test := range map[string]struct {
		deletable bool
		order     namespaces.Order
		want      string
	}{
		"nothing can be deleted there":   {false, namespaces.Order{}, gone},
		"upstream's controller":          {false, namespaces.UpstreamOrder(), waiting},
		"objects can be deleted there":   {true, namespaces.Order{}, waiting},
		"objects, upstream's controller": {true, namespaces.UpstreamOrder(), waiting},
	} {
		t.Run(name, func(t *testing.T) {
			inv := cluster(t, "Namespace shop", "ConfigMap a")
			readings := schema.GroupVersionResource{Group: "metrics.example.com", Version: "v1", Resource: "readings"}
			inv.Resources = append(inv.Resources, &inventory.Resource{GroupVersionResource: readings, Kind: "Reading", Namespaced: true, Deletable: test.deletable})
			inv.Unread = []inventory.Unread{{Resource: readings.GroupVersion().WithResource(""), Why: "no route to host"}}
			inv.Index()
			got := told(preview.New(inv).Predict(requests("Background", "shop"), preview.Options{Now: now(), Order: test.order}))
			if want := []string{"a Deleted by NamespaceController", test.want}; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// TestOutcomeDependsOnTheFirstActor: an outcome is a race if it depends on whether the collector processes a dependent
// or its owner first, or on whether the collector works between two requests.
func TestOutcomeDependsOnTheFirstActor(t *testing.T) {
	for _, test := range []struct {
		name     string
		lines    []string
		requests []preview.Request
		races    []string
	}{
		{
			"an owner that loses the collector's finalizer at once, and stays",
			[]string{"ConfigMap other", "ConfigMap owner # example.com/hold", "ConfigMap dependent < other! owner"},
			requests("Foreground", "owner"),
			[]string{"dependent"},
		},
		{
			"a request that comes too late to orphan",
			[]string{"ConfigMap a", "ConfigMap b < a", "ConfigMap c < b!", "ConfigMap d < c! # example.com/hold"},
			slices.Concat(requests("Foreground", "a"), requests("Orphan", "b")),
			[]string{"b", "c", "d"},
		},
		{
			"none", []string{"ConfigMap a", "ConfigMap b < a!", "ConfigMap c < b!"}, requests("Foreground", "a"), nil,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var races []string
			for _, o := range preview.New(cluster(t, test.lines...)).Predict(test.requests, preview.Options{}).Outcomes {
				if o.Race {
					races = append(races, o.Object.Name)
				}
			}
			slices.Sort(races)
			if !slices.Equal(races, test.races) {
				t.Errorf("%q are in a race, want %q", races, test.races)
			}
		})
	}
}

func TestPredictedOutcomes(t *testing.T) {
	tests := []struct {
		name    string
		cluster []string
		policy  string
		delete  []string
		want    []string
	}{
		{
			"background takes what has no other owner",
			[]string{"ConfigMap a", "ConfigMap b < a", "ConfigMap c < b", "ConfigMap d < a e", "ConfigMap e"},
			"Background",
			[]string{"a"},
			[]string{"a Deleted by User", "b Deleted by Collector", "c Deleted by Collector", "d Detached from [a] by owners [e]"},
		},
		{
			"orphan detaches",
			[]string{"ConfigMap a", "ConfigMap b < a", "ConfigMap c < b"},
			"Orphan",
			[]string{"a"},
			[]string{"a Deleted by User", "b Detached from [a] by owners []"},
		},
		{
			"foreground waits for what blocks",
			[]string{"ConfigMap a", "ConfigMap b < a!", "ConfigMap c < b! # example.com/hold"},
			"Foreground",
			[]string{"a"},
			[]string{
				"a Waiting by User for Dependents foregroundDeletion[b]", "b Waiting by Collector for Dependents foregroundDeletion[c]",
				"c Waiting by Collector for Finalizer example.com/hold[]",
			},
		},
		{
			"a held owner keeps its dependents",
			[]string{"ConfigMap a # example.com/hold", "ConfigMap b < a"},
			"Background",
			[]string{"a"},
			[]string{"a Waiting by User for Finalizer example.com/hold[]", "b Kept by owners [a]"},
		},
		{
			"a cycle in foreground deletion is cut",
			[]string{"ConfigMap a < b!", "ConfigMap b < a!"},
			"Foreground",
			[]string{"a", "b"},
			[]string{"a Deleted by User", "b Deleted by User"},
		},
		{
			"jobs orphan by default",
			[]string{"Job a", "Pod b < a"},
			"",
			[]string{"a"},
			[]string{"a Deleted by User", "b Detached from [a] by owners []"},
		},
		{
			"a namespace with its contents in stages",
			[]string{"Namespace shop", "Pod p @ n1", "Node n1", "ConfigMap c # example.com/hold", "ConfigMap d < c", "Role r"},
			"",
			[]string{"shop"},
			[]string{
				"c Waiting by NamespaceController for Finalizer example.com/hold[]", "d Deleted by NamespaceController",
				"p Deleted by NamespaceController", "shop Waiting by User for Contents kubernetes[c r]",
			},
		},
		{
			"a pod of a node that is gone",
			[]string{"Namespace shop", "Pod p @ n1", "ConfigMap c"},
			"",
			[]string{"p"},
			[]string{"p Deleted by User"},
		},
		{
			"a definition with its instances, and what they own",
			[]string{"CustomResourceDefinition widgets.example.com # customresourcecleanup.apiextensions.k8s.io", "Widget w", "ConfigMap c < w"},
			"Background",
			[]string{"widgets.example.com"},
			[]string{"c Deleted by Collector", "w Deleted by Server", "widgets.example.com Deleted by User"},
		},
		{
			"a late orphan deletion is refused",
			[]string{"ConfigMap a # example.com/hold deleting", "ConfigMap b < a"},
			"Orphan",
			[]string{"a"},
			[]string{"a Waiting for Finalizer example.com/hold[] refused"},
		},
		{"nothing of what is not concerned", []string{"ConfigMap a", "ConfigMap b", "ConfigMap c < b"}, "Background", []string{"a"}, []string{"a Deleted by User"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := preview.New(cluster(t, test.cluster...))
			got := told(w.Predict(requests(test.policy, test.delete...), preview.Options{Now: now()}))
			if !slices.Equal(got, test.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(test.want, "\n  "))
			}
		})
	}
}

func now() time.Time { return time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC) }

// TestReleasedFinalizersHoldNothing: if the controllers of finalizers work, no object waits.
func TestReleasedFinalizersHoldNothing(t *testing.T) {
	w := preview.New(cluster(t, "ConfigMap a # example.com/hold", "ConfigMap b < a # example.com/other"))
	released := func(_ *inventory.Object, finalizer string) bool { return finalizer == "example.com/hold" }
	got := told(w.Predict(requests("Background", "a"), preview.Options{Now: now(), Released: released}))
	want := []string{"a Deleted by User", "b Waiting by Collector for Finalizer example.com/other[]"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Owners that waited for a deleted object are deleted, too, and the prediction says that the user did not request it.
func TestWaitingOwnersAreReleasedInTurn(t *testing.T) {
	w := preview.New(cluster(t, "ConfigMap a # foregroundDeletion deleting", "ConfigMap b < a! # foregroundDeletion deleting",
		"ConfigMap c < b! # example.com/hold deleting", "ConfigMap d < a"))
	released := func(*inventory.Object, string) bool { return true }
	got := told(w.Predict(requests("Background", "c"), preview.Options{Now: now(), Released: released}))
	want := []string{"a Deleted", "b Deleted", "c Deleted", "d Deleted by Collector"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestClaimWaitsForPods: a protected volume claim waits for the pods on nodes that use it, and is deleted with them.
func TestClaimWaitsForPods(t *testing.T) {
	const claim = "PersistentVolumeClaim data # kubernetes.io/pvc-protection"
	for name, test := range map[string]struct {
		node   string
		delete []string
		want   []string
	}{
		"used":                   {"n1", []string{"data"}, []string{"data Waiting by User for Users kubernetes.io/pvc-protection[p]"}},
		"used by one that goes":  {"n1", []string{"data", "p"}, []string{"data Deleted by User", "p Deleted by User"}},
		"on no node":             {"", []string{"data"}, []string{"data Deleted by User"}},
		"used by one that ended": {"n1", []string{"data"}, []string{"data Waiting by User for Users kubernetes.io/pvc-protection[p]"}},
	} {
		t.Run(name, func(t *testing.T) {
			inv := cluster(t, claim, "Node n1", "Pod p @ "+test.node, "Pod q @ n1")
			inv.Pods["p"].Claims = []inventory.Claim{{Name: "data"}}
			if name == "used by one that ended" {
				inv.Pods["p"].Phase = corev1.PodSucceeded
			}
			got := told(preview.New(inv).Predict(requests("Background", test.delete...), preview.Options{Now: now()}))
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestVolumeWaitsForItsClaim: a protected volume waits for its bound claim, and is deleted with it.
func TestVolumeWaitsForItsClaim(t *testing.T) {
	const volume, finalizer = "PersistentVolume v # kubernetes.io/pv-protection", "Waiting by User for Finalizer kubernetes.io/pv-protection[]"
	for name, test := range map[string]struct {
		bound, unread, unseen bool
		held                  string // a finalizer of the claim
		delete, want          []string
	}{
		"bound":                {bound: true, delete: []string{"v"}, want: []string{"v Waiting by User for Users kubernetes.io/pv-protection[data]"}},
		"its claim goes, too":  {bound: true, delete: []string{"v", "data"}, want: []string{"v Deleted by User", "data Deleted by User"}},
		"its claim goes later": {bound: true, held: " # example.com/lets-go", delete: []string{"v", "data"}, want: []string{"v Deleted by User", "data Deleted by User"}},
		"bound to nobody":      {delete: []string{"v"}, want: []string{"v Deleted by User"}},
		"its claim is unseen":  {bound: true, unseen: true, delete: []string{"v"}, want: []string{"v Waiting by User for Users kubernetes.io/pv-protection[]"}},
		"what cannot be read":  {unread: true, delete: []string{"v"}, want: []string{"v " + finalizer}},
		"what nobody protects": {bound: true, delete: []string{"w"}, want: []string{"w Deleted by User"}},
	} {
		t.Run(name, func(t *testing.T) {
			inv := cluster(t, volume, "PersistentVolume w", "PersistentVolumeClaim data"+test.held)
			if test.unseen {
				inv.Objects = slices.DeleteFunc(inv.Objects, func(o *inventory.Object) bool { return o.UID == "data" })
				inv.Index()
			}
			released := func(_ *inventory.Object, finalizer string) bool { return finalizer == "example.com/lets-go" }
			read := func(name string) inventory.Fact[inventory.Volume] {
				if test.unread {
					return inventory.Fact[inventory.Volume]{Unread: "forbidden"}
				}
				v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
				if !test.bound {
					return inventory.Fact[inventory.Volume]{Value: inventory.Volume{Volume: v}}
				}
				v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "data"}
				return inventory.Fact[inventory.Volume]{Value: inventory.Volume{Volume: v, Claim: &corev1.PersistentVolumeClaim{
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "data"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: name},
				}}}
			}
			p := preview.New(inv).Predict(requests("Background", test.delete...), preview.Options{Now: now(), Volume: read, Released: released})
			if text := p.Report(inv).String(); test.bound && len(test.delete) == 1 && test.delete[0] == "v" && !strings.Contains(text, "what uses it: PersistentVolumeClaim shop/data") {
				t.Error(text)
			}
			got := told(p)
			slices.Sort(got)
			slices.Sort(test.want)
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// A node that does not answer ends no pods.
func TestLostNodeEndsNoPods(t *testing.T) {
	inv := cluster(t, "Node n1", "Node n2", "Pod p @ n1", "Pod q @ n2")
	state := func(node string) builtin.NodeState { return builtin.NodeState{Exists: true, Ready: node != "n1"} }
	got := told(preview.New(inv).Predict(requests("Background", "p", "q"), preview.Options{Now: now(), Node: state}))
	if want := []string{"p Waiting by User for Node n1[]", "q Deleted by User"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestOutcomeThatDependsOnTheOrderIsARace: b stays if the orphan deletion of a is done first only where c still exists;
// the order is not guaranteed.
func TestOutcomeThatDependsOnTheOrderIsARace(t *testing.T) {
	w := preview.New(cluster(t, "ConfigMap a", "ConfigMap b < a c", "ConfigMap c"))
	both := []preview.Request{{UID: "a", Propagation: metav1.DeletePropagationOrphan}, {UID: "c", Propagation: metav1.DeletePropagationBackground}}
	for _, o := range w.Predict(both, preview.Options{Now: now()}).Outcomes {
		if o.Race != (o.Object.UID == "b") {
			t.Errorf("%s: race is %t", o.Object.UID, o.Race)
		}
	}
}

// The collector may remove the reference to a removed instance before the next instance is marked for deletion, or
// find it already marked.
func TestRaceBetweenInstancesOfADefinitionIsNamed(t *testing.T) {
	w := preview.New(cluster(t, "CustomResourceDefinition widgets.example.com", "ConfigMap stays",
		"Widget a", "Widget b < stays a # example.com/hold"))
	requests := []preview.Request{{UID: "widgets.example.com", Propagation: metav1.DeletePropagationBackground}}
	for _, o := range w.Predict(requests, preview.Options{Now: now()}).Outcomes {
		if o.Race != (o.Object.UID == "b") {
			t.Errorf("%s: race is %t", o.Object.UID, o.Race)
		}
	}
}

// A class stays while volumes or claims name it, and goes with the last of them (R23).
func TestClassWaitsForVolumesAndClaims(t *testing.T) {
	class := inventory.ClassUser{UID: "data", Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data"}
	volume := inventory.ClassUser{UID: "disk", Kind: "PersistentVolume", Name: "disk"}
	for name, test := range map[string]struct {
		users        inventory.Fact[[]inventory.ClassUser]
		delete, want []string
	}{
		"named by nothing": {delete: []string{"gold"}, want: []string{"gold Deleted by User"}},
		"named by a claim": {
			users: inventory.Fact[[]inventory.ClassUser]{Value: []inventory.ClassUser{class}}, delete: []string{"gold"},
			want: []string{"gold Waiting by User for Users kubernetes.io/vac-protection[data]"},
		},
		"named by what goes": {
			users: inventory.Fact[[]inventory.ClassUser]{Value: []inventory.ClassUser{class, volume}}, delete: []string{"gold", "data", "disk"},
			want: []string{"data Deleted by User", "disk Deleted by User", "gold Deleted by User"},
		},
		"it is unknown": {
			users: inventory.Fact[[]inventory.ClassUser]{Unread: "forbidden"}, delete: []string{"gold"},
			want: []string{"gold Waiting by User for Finalizer kubernetes.io/vac-protection[]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inv := cluster(t, "VolumeAttributesClass gold # kubernetes.io/vac-protection", "PersistentVolumeClaim data", "PersistentVolume disk")
			options := preview.Options{Now: now(), Class: func(string) inventory.Fact[[]inventory.ClassUser] { return test.users }}
			if got := told(preview.New(inv).Predict(requests("Background", test.delete...), options)); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestFateOfAnObjectWithAnUnreadOwnerIsUnknown: the fate of an object with an unread owner is unknown.
func TestFateOfAnObjectWithAnUnreadOwnerIsUnknown(t *testing.T) {
	inv := cluster(t, "ConfigMap a", "ConfigMap b < a w", "Widget w")
	inv.Objects = slices.DeleteFunc(inv.Objects, func(o *inventory.Object) bool { return o.UID == "w" })
	inv.Unread = []inventory.Unread{{Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, Forbidden: true}}
	inv.Index()
	got := told(preview.New(inv).Predict(requests("Background", "a"), preview.Options{Now: now()}))
	if want := []string{"a Deleted by User", "b Unknown"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestDigestCoversThePrediction: the digest covers the prediction, and nothing else.
func TestDigestCoversThePrediction(t *testing.T) {
	lines := []string{"ConfigMap a", "ConfigMap b < a", "ConfigMap c"}
	digest := func(change func(*inventory.Object)) string {
		inv := cluster(t, lines...)
		for _, o := range inv.Objects {
			change(o)
		}
		return preview.New(inv).Predict(requests("Background", "a"), preview.Options{Now: now()}).Digest
	}
	change := func(uid ownership.UID) func(*inventory.Object) {
		return func(o *inventory.Object) {
			if o.UID == uid {
				o.ResourceVersion = "17"
			}
		}
	}
	before := digest(func(*inventory.Object) {})
	if digest(change("c")) != before {
		t.Error("it changes with an object that is not concerned")
	}
	if digest(change("b")) == before {
		t.Error("it does not change with a dependent")
	}
}

// A dependent with many owners is played with all of them: it goes with the last one, and not before.
func TestManyOwnersArePlayed(t *testing.T) {
	const many = 300
	lines, owners := []string{}, []string{}
	for n := range many {
		lines = append(lines, fmt.Sprint("ConfigMap o", n))
		owners = append(owners, fmt.Sprint("o", n))
	}
	lines = append(lines, "ConfigMap d < "+strings.Join(owners, "! ")+"!")
	w := preview.New(cluster(t, lines...))
	for _, policy := range []string{"Background", "Foreground"} {
		for kept, want := range []preview.Fate{preview.Deleted, preview.Detached} {
			var d preview.Outcome
			for _, o := range w.Predict(requests(policy, owners[kept:]...), preview.Options{Now: now()}).Outcomes {
				if o.Object.UID == "d" {
					d = o
				} else if o.Fate != preview.Deleted {
					t.Errorf("%s, %d kept: %s is %s", policy, kept, o.Object.UID, o.Fate)
				}
			}
			if d.Fate != want || len(d.KeptBy) != kept || len(d.Lost) != kept*(many-1) {
				t.Errorf("%s, %d kept: d is %s, lost %d owners and is kept by %v", policy, kept, d.Fate, len(d.Lost), d.KeptBy)
			}
		}
	}
}

// A prediction has all dependents that block a deletion; the report counts those that it does not name.
func TestAllBlockingDependentsCount(t *testing.T) {
	lines := []string{"ConfigMap o"}
	for n := range 100 {
		lines = append(lines, fmt.Sprintf("ConfigMap d%d < o! # example.com/hold", n))
	}
	inv := cluster(t, lines...)
	report := preview.New(inv).Predict(requests("Foreground", "o"), preview.Options{Now: now()}).Report(inv)
	for _, o := range report.Objects {
		if o.Name == "o" && (len(o.Waits) != 1 || len(o.Waits[0].Objects)+o.Waits[0].MoreObjects != 100) {
			t.Errorf("o waits for %+v", o.Waits)
		}
	}
}
