package undo

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// resources returns the resources of the scenarios, by kind. All but the last three are namespaced.
func resources() map[string]schema.GroupVersionResource {
	core := func(r string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: r}
	}
	in := func(g, r string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: g, Version: "v1", Resource: r}
	}
	return map[string]schema.GroupVersionResource{
		"ConfigMap": core("configmaps"), "Secret": core("secrets"), "Pod": core("pods"), "Job": in("batch", "jobs"),
		"ServiceAccount": core("serviceaccounts"), "PersistentVolumeClaim": core("persistentvolumeclaims"),
		"Deployment": in("apps", "deployments"), "ReplicaSet": in("apps", "replicasets"), "StatefulSet": in("apps", "statefulsets"), "Widget": in("example.com", "widgets"),
		"ResourceQuota": core("resourcequotas"), "Lease": in("coordination.k8s.io", "leases"),
		"PodCertificateRequest": in("certificates.k8s.io", "podcertificaterequests"), "ClusterTrustBundle": in("certificates.k8s.io", "clustertrustbundles"),
		"Namespace": core("namespaces"), "PersistentVolume": core("persistentvolumes"),
		"CustomResourceDefinition": in("apiextensions.k8s.io", "customresourcedefinitions"),
	}
}

func isNamespaced(kind string) bool {
	return kind != "Namespace" && kind != "ClusterTrustBundle" && kind != "PersistentVolume" && kind != "CustomResourceDefinition"
}

// clusterOf returns a cluster that serves all kinds, but Widget only if its definition exists, and that has the
// namespace shop.
func clusterOf(existing ...string) Cluster {
	c := Cluster{Kinds: map[schema.GroupKind]Kind{}, Existing: map[Place]Existing{}}
	for kind, r := range resources() {
		if kind != "Widget" {
			c.Kinds[schema.GroupKind{Group: r.Group, Kind: kind}] = Kind{Resource: r, Namespaced: isNamespaced(kind)}
		}
	}
	c.Existing[Place{Kind: namespaceKind, Name: "shop"}] = Existing{UID: "shop-now"}
	for _, line := range existing {
		words := strings.Fields(line)
		k := keptOf(strings.Join(words[:2], " "))
		e := Existing{UID: types.UID(words[2])}
		for _, word := range words[3:] {
			if from, ok := strings.CutPrefix(word, "from="); ok {
				e.UndoneFrom = types.UID(from)
			} else if by, ok := strings.CutPrefix(word, "by="); ok {
				e.Owners = []metav1.OwnerReference{{UID: types.UID(by), Controller: new(true)}}
			} else if volume, ok := strings.CutPrefix(word, "bound="); ok {
				e.VolumeName = volume
			} else {
				e.Terminating = word == "terminating"
			}
		}
		c.Existing[k.Place()] = e
	}
	return c
}

// keptOf makes an object of a line "KIND NAME [< KIND/OWNER[!]...] [# FINALIZER...]". Its UID is its name. ! stands
// for a controller.
func keptOf(line string) Kept {
	words := strings.Fields(line)
	r := resources()[words[0]]
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion(r.GroupVersion().String())
	o.SetKind(words[0])
	o.SetName(words[1])
	o.SetUID(types.UID(words[1]))
	o.SetResourceVersion("7")
	if isNamespaced(words[0]) {
		o.SetNamespace("shop")
	}
	mode := ""
	for _, word := range words[2:] {
		switch {
		case word == "<" || word == "#":
			mode = word
		case mode == "<":
			kind, name, _ := strings.Cut(word, "/")
			name, isController := strings.CutSuffix(name, "!")
			o.SetOwnerReferences(append(o.GetOwnerReferences(), metav1.OwnerReference{
				APIVersion: resources()[kind].GroupVersion().String(), Kind: kind, Name: name, UID: types.UID(name), Controller: &isController,
			}))
		default:
			o.SetFinalizers(append(o.GetFinalizers(), word))
		}
	}
	return Kept{Resource: r, Object: o}
}

func keptAll(lines ...string) []Kept {
	var all []Kept
	for _, line := range lines {
		all = append(all, keptOf(line))
	}
	return all
}

// carryOut executes a plan, creates objects with the UID NAME-2, and returns the creations and links, in order.
func carryOut(t *testing.T, p *Plan) []string {
	t.Helper()
	var log []string
	for _, wave := range p.Waves() {
		for _, s := range wave {
			o, why := p.Object(s, true)
			if why != "" {
				p.Failed(s, why)
				log = append(log, "cannot "+s.Place().Name)
				continue
			}
			log = append(log, fmt.Sprintf("%d %s%s", s.Wave, s.Place().Name, ownersOf(o.GetOwnerReferences())))
			p.Made(s, types.UID(o.GetName()+"-2"), o.GetOwnerReferences())
		}
	}
	for _, s := range p.Unlinked() {
		owners, _ := p.Owners(s, s.has)
		log = append(log, "link "+s.Place().Name+ownersOf(owners))
		p.Linked(s, owners)
	}
	if left := p.Unlinked(); len(left) > 0 {
		t.Errorf("%d objects lack references in the end", len(left))
	}
	return log
}

func ownersOf(owners []metav1.OwnerReference) string {
	text := ""
	for _, o := range owners {
		text += " < " + string(o.UID)
	}
	return text
}

func tells(p *Plan) []string {
	var all []string
	for _, o := range p.Report().Objects {
		line := string(o.Outcome) + " " + o.Name
		if text := strings.Join(append(slices.DeleteFunc([]string{o.Why}, func(w string) bool { return w == "" }), o.Notes...), "; "); text != "" {
			line += ": " + text
		}
		all = append(all, line)
	}
	return all
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant:\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestR29_OwnersAreCreatedFirst(t *testing.T) {
	p := New(keptAll("ConfigMap c < ConfigMap/b ConfigMap/a", "ConfigMap b < ConfigMap/a", "ConfigMap a", "ResourceQuota q", "Deployment d"), clusterOf(), Options{})
	same(t, "made", carryOut(t, p), "1 a", "2 b < a-2", "3 c < b-2 < a-2", "4 d", "5 q")
}

func TestR29_NamespacesAndDefinitionsFirst(t *testing.T) {
	kept := keptAll("Widget w", "ConfigMap a < Namespace/shop", "Namespace shop", "CustomResourceDefinition widgets.example.com")
	c := clusterOf()
	delete(c.Existing, Place{Kind: namespaceKind, Name: "shop"})
	same(t, "made", carryOut(t, New(kept, c, Options{})), "1 shop", "1 widgets.example.com", "2 a < shop-2", "3 w")

	same(t, "without them", tells(New(kept[:2], c, Options{})),
		"Failed a: its namespace is gone, and is not undone with it: create it first",
		"Failed w: the server does not serve Widget.example.com")
	same(t, "a namespace that is being deleted", tells(New(kept[1:2], clusterOf("Namespace shop other terminating"), Options{})),
		"Failed a: its namespace is still being deleted: undo this once it is gone")

	p := New(kept[1:3], c, Options{})
	p.Failed(p.Waves()[0][0], "no")
	if _, why := p.Object(p.steps["a"], false); why != "Namespace shop could not be made" {
		t.Errorf("without its namespace: %q", why)
	}
}

// An object that could not be read is not gone: the creation decides, and the notes say what is unknown.
func TestR29_UnreadIsNotGone(t *testing.T) {
	kept := keptAll("PersistentVolumeClaim data", "ConfigMap a < ClusterTrustBundle/b", "ConfigMap w < Widget/x", "Widget w2", "Secret s", "Secret stayed")
	kept[0].Object.Object["spec"] = map[string]any{"volumeName": "pv"}
	kept[5].Stays = true
	c := clusterOf()
	delete(c.Existing, Place{Kind: namespaceKind, Name: "shop"})
	c.Unread = map[Place]string{
		{Kind: namespaceKind, Name: "shop"}: "you may not get namespaces",
		{Kind: volumeKind, Name: "pv"}:      "you may not get persistentvolumes",
		{Kind: schema.GroupKind{Group: "certificates.k8s.io", Kind: "ClusterTrustBundle"}, Name: "b"}: "you may not get clustertrustbundles",
		kept[4].Place(): "you may not get secrets",
		kept[5].Place(): "you may not get secrets",
	}
	c.UnreadGroups = map[string]string{"example.com": "503"}
	const again = "; the same undo adds the reference once the owner can be read"
	p := New(kept, c, Options{})
	same(t, "planned", tells(p),
		"Made a", "Made w",
		"Made data: its volume pv could not be read (you may not get persistentvolumes): it may be gone, or still be reserved for the old UID",
		"Made s: unless an object has its name, which could not be read: you may not get secrets",
		"LeftOut stayed: it was not deleted then, and could not be read: you may not get secrets",
		"Failed w2: the API group example.com does not answer: 503")
	carryOut(t, p)
	same(t, "made", tells(p),
		"Made a: without its owner ClusterTrustBundle b, which could not be read (you may not get clustertrustbundles)"+again,
		"Made w: without its owner Widget x, which could not be read (the API group example.com does not answer: 503)"+again,
		"Made data: its volume pv could not be read (you may not get persistentvolumes): it may be gone, or still be reserved for the old UID", "Made s",
		"LeftOut stayed: it was not deleted then, and could not be read: you may not get secrets",
		"Failed w2: the API group example.com does not answer: 503")
}

// No object is created with a reference to an absent owner: the collector would delete it.
func TestR29_CyclesAreLinkedAfterCreation(t *testing.T) {
	kept := keptAll("ConfigMap a < ConfigMap/c", "ConfigMap b < ConfigMap/a", "ConfigMap c < ConfigMap/b", "ConfigMap d < ConfigMap/a", "ConfigMap e < ConfigMap/e")
	p := New(kept, clusterOf(), Options{})
	same(t, "made", carryOut(t, p), "1 e", "2 a", "3 b < a-2", "3 d < a-2", "4 c < b-2", "link e < e-2", "link a < c-2")
}

// The controller of a StatefulSet creates the missing claims of its pods, empty; an operator creates a missing password.
func TestR29_DataIsCreatedBeforeItsController(t *testing.T) {
	kept := keptAll("StatefulSet pg", "PersistentVolumeClaim data-pg-0 < StatefulSet/pg", "PersistentVolume v", "ConfigMap late < Widget/w",
		"CustomResourceDefinition widgets.example.com", "Widget w", "Secret password < Widget/w!", "Pod bare", "PersistentVolumeClaim bare-scratch < Pod/bare!")
	claimRef := map[string]any{"namespace": "shop", "name": "data-pg-0", "uid": "data-pg-0"}
	kept[2].Object.Object["spec"] = map[string]any{"claimRef": claimRef}
	kept[1].Object.Object["spec"] = map[string]any{"volumeName": "v"}
	p := New(kept, clusterOf(), Options{})
	same(t, "made", carryOut(t, p), "1 widgets.example.com", "2 late", "2 bare-scratch", "2 data-pg-0", "2 password", "3 v", "4 w", "5 bare", "5 pg",
		"link late < w-2", "link bare-scratch < bare-2", "link data-pg-0 < pg-2", "link password < w-2")
}

func TestR29_PostponedOwnerThatFailedIsReported(t *testing.T) {
	p := New(keptAll("StatefulSet pg", "PersistentVolumeClaim data-pg-0 < StatefulSet/pg"), clusterOf(), Options{})
	p.Made(p.steps["data-pg-0"], "data-pg-0-2", nil)
	p.Failed(p.steps["pg"], "no")
	same(t, "told", tells(p), "Made data-pg-0: without its owner StatefulSet pg, which was not restored", "Failed pg: no")
}

func TestR29_OwnerThatFailed(t *testing.T) {
	kept := keptAll("ConfigMap a", "ConfigMap b < ConfigMap/a")
	p := New(kept, clusterOf(), Options{})
	p.Failed(p.Waves()[0][0], "no")
	p.Interrupted()
	o, _ := p.Object(p.steps["b"], false)
	if len(o.GetOwnerReferences()) != 0 {
		t.Errorf("b has %v", o.GetOwnerReferences())
	}
	again := New(kept, clusterOf("ConfigMap b b-2 from=b"), Options{})
	same(t, "the next undo", carryOut(t, again), "1 a", "link b < a-2")
}

func TestR29_InterruptedGoesOn(t *testing.T) {
	kept := keptAll("ConfigMap a", "ConfigMap b < ConfigMap/a", "ConfigMap c < ConfigMap/b")
	p := New(kept, clusterOf("ConfigMap a a-2 from=a", "ConfigMap b b-2 from=b"), Options{})
	same(t, "made", carryOut(t, p), "1 c < b-2", "link b < a-2")
	same(t, "told", tells(p), "Made c", "MadeBefore a", "MadeBefore b")
}

// An owner that the undo does not create counts only if it is the same object, or was recreated by an undo.
func TestR29_OtherOwnerCountsIfItIsTheSameObject(t *testing.T) {
	kept := keptAll("ConfigMap b < ConfigMap/a")
	for _, test := range []struct {
		existing []string
		relink   bool
		made     string
		told     string
	}{
		{nil, false, "1 b", "Made b: without its owner ConfigMap a, which is gone"},
		{[]string{"ConfigMap a a"}, false, "1 b < a", "Made b"},
		{[]string{"ConfigMap a a terminating"}, false, "1 b", "Made b: without its owner ConfigMap a, which is being deleted"},
		{[]string{"ConfigMap a a-2 from=a"}, false, "1 b < a-2", "Made b"},
		{[]string{"ConfigMap a other"}, false, "1 b", "Made b: without its owner ConfigMap a, which is another object now, which only --relink makes its owner"},
		{[]string{"ConfigMap a other"}, true, "1 b < other", "Made b"},
	} {
		p := New(kept, clusterOf(test.existing...), Options{Relink: test.relink})
		same(t, fmt.Sprint(test.existing), carryOut(t, p), test.made)
		same(t, fmt.Sprint(test.existing), tells(p), test.told)
	}
}

func TestR29_WhatIsThereStays(t *testing.T) {
	kept := keptAll("ConfigMap a", "ConfigMap b", "ConfigMap c", "ConfigMap d < ConfigMap/c")
	p := New(kept, clusterOf("ConfigMap a a", "ConfigMap b b terminating", "ConfigMap c other"), Options{})
	same(t, "made", carryOut(t, p), "1 d")
	same(t, "told", tells(p),
		"Made d: without its owner ConfigMap c, which was not restored", "Exists a",
		"Terminating b: it is still being deleted: undo this once it is gone", "Occupied c: another object has its name")
}

func TestR29_WhatIsMadeByItself(t *testing.T) {
	kept := keptAll("Deployment web", "ReplicaSet web-1 < Deployment/web!", "Pod web-1-x < ReplicaSet/web-1!", "ConfigMap of-pod < Pod/web-1-x", "Lease l", "ConfigMap kube-root-ca.crt", "Pod bare", "Job done", "Job running", "Secret token",
		"PodCertificateRequest pcr", "ClusterTrustBundle kubernetes.io:kube-apiserver-serving:f0", "ClusterTrustBundle roots")
	set := func(name string, value any, fields ...string) {
		at := slices.IndexFunc(kept, func(k Kept) bool { return k.Object.GetName() == name })
		if err := unstructured.SetNestedField(kept[at].Object.Object, value, fields...); err != nil {
			t.Fatal(err)
		}
	}
	set("done", []any{map[string]any{"type": "Complete", "status": "True"}}, "status", "conditions")
	set("token", "kubernetes.io/service-account-token", "type")
	// The Deployment's controller is faster, with a ReplicaSet of the same name.
	p := New(kept, clusterOf("Deployment web web-2 from=web", "ReplicaSet web-1 new by=web-2", "ConfigMap kube-root-ca.crt other"), Options{})
	same(t, "told", tells(p),
		"Made roots", "Made bare: it starts again", "Made running: it runs again, from the beginning", "MadeBefore web", "Remade web-1",
		"LeftOut kube-root-ca.crt: it is created again in every namespace",
		"LeftOut of-pod: its owner is not restored with the same UID",
		"LeftOut web-1-x: it ran; ReplicaSet web-1 makes another one",
		"LeftOut token: its token belongs to a service account with another UID: create a new token",
		"LeftOut done: it had finished, and would run again", "LeftOut kubernetes.io:kube-apiserver-serving:f0: it is created again by the controllers",
		"LeftOut pcr: the node of its pod requests a new certificate", "LeftOut l: its holder creates it again")
}

// Objects that only lost references get them again, and are not created.
func TestR29_SurvivorsGetTheirReferencesAgain(t *testing.T) {
	kept := keptAll("ConfigMap a", "ConfigMap b < ConfigMap/a", "ConfigMap c < ConfigMap/a")
	kept[1].Stays, kept[2].Stays = true, true
	p := New(kept, clusterOf("ConfigMap b b"), Options{})
	same(t, "made", carryOut(t, p), "1 a", "link b < a-2")
	same(t, "told", tells(p), "Made a", "LeftOut c: it was not deleted then, and is gone now")
}

func TestR29_UnknownOrphansAreReported(t *testing.T) {
	kept := keptAll("ConfigMap a")
	kept[0].OrphansUnknown = true
	same(t, "told", tells(New(kept, clusterOf(), Options{})), "Made a: its deletion orphaned its dependents, which have no reference to it now")
}

func TestR29_ContentsOfAnEarlierAttemptAreReported(t *testing.T) {
	kept := keptAll("ConfigMap a", "ConfigMap b")
	kept[0].Earlier = true
	same(t, "told", tells(New(kept, clusterOf(), Options{})), "Made a: it has the contents that an earlier attempt to delete it has read", "Made b")
}

// An object that several orphan deletions have detached gets all its references again, unless it was deleted then.
func TestR29_SurvivorsOfSeveralDeletionsAreMerged(t *testing.T) {
	kept := keptAll("ConfigMap b < ConfigMap/c", "ConfigMap b < ConfigMap/a", "ConfigMap d < ConfigMap/a", "ConfigMap d", "ConfigMap a", "ConfigMap c")
	for n, revision := range []int64{3, 1, 2, 4, 5, 6} {
		kept[n].Revision, kept[n].Stays = revision, n < 3
	}
	p := New(Merge(kept), clusterOf("ConfigMap b b"), Options{})
	same(t, "made", carryOut(t, p), "1 a", "1 c", "1 d", "link b < a-2 < c-2")
	if len(kept[1].Object.GetOwnerReferences()) != 1 {
		t.Error("the kept objects have changed")
	}
}

func TestR29_WhatIsCreated(t *testing.T) {
	k := keptOf("ConfigMap a # acme.io/x foregroundDeletion")
	k.Object.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
	k.Object.SetCreationTimestamp(metav1.Time{Time: time.Unix(1, 0)})
	k.Object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "x"}})
	k.Object.SetAnnotations(map[string]string{"kept": "yes"})
	k.Object.Object["status"] = map[string]any{"x": "y"}
	k.Object.Object["data"] = map[string]any{"x": "y"}
	for _, with := range []bool{false, true} {
		p := New([]Kept{k}, clusterOf(), Options{Finalizers: with})
		o, _ := p.Object(p.Steps[0], true)
		want := map[string]any{"name": "a", "namespace": "shop", "annotations": map[string]any{"kept": "yes", Annotation: "a"}}
		if with {
			want["finalizers"] = []any{"acme.io/x"}
		}
		if got := fmt.Sprint(o.Object); got != fmt.Sprint(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": want, "data": map[string]any{"x": "y"}}) {
			t.Errorf("created is %s", got)
		}
		same(t, "told", tells(p), "Made a: it had the finalizer acme.io/x: its controller may have destroyed resources outside of the cluster")
	}
	if k.Object.GetResourceVersion() == "" || k.Object.GetAnnotations()[Annotation] != "" {
		t.Error("what was kept has changed")
	}
}

// The server refuses to create a pod with ephemeral containers.
func TestR29_DebuggedPodLosesItsEphemeralContainers(t *testing.T) {
	kept := keptAll("Pod debugged", "Pod other")
	containers := []any{map[string]any{"name": "app"}}
	kept[0].Object.Object["spec"] = map[string]any{"nodeName": "n1", "containers": containers, "ephemeralContainers": []any{map[string]any{"name": "debugger-x"}}}
	kept[1].Object.Object["spec"] = map[string]any{"containers": containers}
	p := New(kept, clusterOf(), Options{})
	o, _ := p.Object(p.steps["debugged"], true)
	if got := fmt.Sprint(o.Object["spec"]); got != "map[containers:[map[name:app]]]" {
		t.Errorf("created with %s", got)
	}
	same(t, "told", tells(p), "Made debugged: it starts again; without its ephemeral containers, which only a running pod can get", "Made other: it starts again")
}

func TestR29_JobLosesItsControllerUID(t *testing.T) {
	k := keptOf("Job j")
	labels := map[string]any{"controller-uid": "j", "batch.kubernetes.io/controller-uid": "j", "app": "x"}
	k.Object.Object["spec"] = map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{"controller-uid": "j"}},
		"template": map[string]any{"metadata": map[string]any{"labels": labels}},
	}
	p := New([]Kept{k}, clusterOf(), Options{})
	o, _ := p.Object(p.Steps[0], true)
	if got := fmt.Sprint(o.Object["spec"]); got != "map[template:map[metadata:map[labels:map[app:x]]]]" {
		t.Errorf("created with %s", got)
	}
}

func TestR29_VolumeIsReservedForTheNewClaim(t *testing.T) {
	kept := keptAll("PersistentVolume v", "PersistentVolumeClaim c")
	claimRef := map[string]any{"kind": "PersistentVolumeClaim", "namespace": "shop", "name": "c", "uid": "c", "resourceVersion": "3"}
	kept[0].Object.Object["spec"] = map[string]any{"claimRef": claimRef, "persistentVolumeReclaimPolicy": "Retain"}
	kept[1].Object.Object["spec"] = map[string]any{"volumeName": "v"}
	p := New(kept, clusterOf(), Options{})
	o, _ := p.Object(p.steps["v"], true)
	if _, has, _ := unstructured.NestedString(o.Object, "spec", "claimRef", "uid"); has {
		t.Error("the volume is reserved for a claim that is gone")
	}
	carryOut(t, p)
	same(t, "volumes", p.Volumes(), "v")
	if uid, differs := p.Claim(kept[0].Object); uid != "c-2" || !differs {
		t.Errorf("the claim is %s, %t", uid, differs)
	}
	if uid, differs := p.Claim(o); uid != "c-2" || !differs {
		t.Errorf("the claim is %s, %t", uid, differs)
	}
	claimRef["uid"] = "somebody"
	if _, differs := p.Claim(kept[0].Object); differs {
		t.Error("a volume that somebody else has is taken away")
	}
	same(t, "a claim without its volume", tells(New(kept[1:], clusterOf(), Options{})), "Made c: its volume v is gone, with its data")
}

func TestR29_ClosureHasTheDependentsDeletedLater(t *testing.T) {
	kept := keptAll("ConfigMap old < ConfigMap/root", "ConfigMap root", "ConfigMap b < ConfigMap/root", "ConfigMap c < ConfigMap/b", "ConfigMap other", "Namespace shop")
	for n := range kept {
		kept[n].Revision = int64(10 + n)
	}
	names := func(all []Kept) (names []string) {
		for _, k := range all {
			names = append(names, k.Object.GetName())
		}
		return names
	}
	same(t, "an owner", names(Closure(kept, "root")), "root", "b", "c")
	same(t, "a namespace that went at once", names(Closure(kept, "shop")), "shop")
	// The namespace was marked at second 100; objects that were removed before do not belong to its deletion.
	kept[5].Object.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(100, 0)})
	for n := range kept {
		kept[n].Removed = time.Unix(int64(98+n), 0)
	}
	same(t, "a namespace", names(Closure(kept, "shop")), "b", "c", "other", "shop")
	if got := Closure(kept, "nobody"); got != nil {
		t.Errorf("nobody: %v", got)
	}
	same(t, "several at once", names(Closure(kept, "b", "other", "nobody")), "b", "c", "other")
	// The namespace was recreated, and its new contents were deleted later.
	again := append(slices.Clone(kept), keptAll("ConfigMap new < ConfigMap/other", "ConfigMap late")...)
	for n := len(kept); n < len(again); n++ {
		again[n].Revision, again[n].Removed = int64(10+n), time.Unix(200, 0)
	}
	same(t, "a namespace that was made again", names(Closure(again, "shop")), "b", "c", "other", "shop", "new")

	twice := keptAll("ConfigMap root", "ConfigMap root", "ConfigMap b < ConfigMap/root")
	twice[1].Object.SetUID("root-2")
	twice[0].Revision, twice[1].Revision, twice[2].Revision = 1, 5, 6
	if uid, _ := Latest(twice, twice[0].Place()); uid != "root-2" {
		t.Errorf("the last is %s", uid)
	}
	same(t, "the last of a name", names(Closure(twice, "root-2")), "root")
	same(t, "the one before", names(Closure(twice, "root")), "root", "b")
}

// Whatever the references, every object is created once, and has all its former owners in the end.
func TestR29_RandomGraphs(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, seed))
		kept := keptAll("Namespace shop", "CustomResourceDefinition widgets.example.com")
		kinds := []string{"ConfigMap", "Widget", "Deployment", "ResourceQuota"}
		count := 1 + r.IntN(12)
		kindOf := make([]string, count)
		for n := range count {
			kindOf[n] = kinds[r.IntN(len(kinds))]
		}
		for n := range count {
			line := fmt.Sprintf("%s o%d <", kindOf[n], n)
			for owner := range count {
				if r.IntN(count) == 0 {
					line += fmt.Sprintf(" %s/o%d", kindOf[owner], owner)
				}
			}
			kept = append(kept, keptOf(line))
		}
		c := clusterOf()
		delete(c.Existing, Place{Kind: namespaceKind, Name: "shop"})
		p := New(kept, c, Options{})
		log := carryOut(t, p)
		for _, s := range p.Steps {
			for n, owner := range s.kept.Object.GetOwnerReferences() {
				if len(s.has) != len(s.kept.Object.GetOwnerReferences()) || !slices.ContainsFunc(s.has, func(h metav1.OwnerReference) bool { return h.UID == owner.UID+"-2" }) {
					t.Errorf("seed %d: %s has %v, without owner %d of %v\n%s", seed, s.Place(), s.has, n, s.kept.Object.GetOwnerReferences(), strings.Join(log, "\n"))
				}
			}
			if s.UID == "" {
				t.Errorf("seed %d: %s is not made", seed, s.Place())
			}
		}
		if t.Failed() {
			return
		}
	}
}
