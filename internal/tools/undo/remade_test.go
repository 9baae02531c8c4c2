package undo

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Anyone may write a controller reference. An object whose controller reference names a recreated object does not
// replace the deleted one: it gets no dependents, and no volume.
func TestR29_ControllerReferencesProveNothing(t *testing.T) {
	kept := keptAll("Deployment web", "ReplicaSet web-1 < Deployment/web!", "ConfigMap of-set < ReplicaSet/web-1",
		"Widget w", "Secret s < Widget/w!", "ConfigMap of-secret < Secret/s")
	existing := []string{"Deployment web web-2 from=web", "ReplicaSet web-1 new by=web-2", "Widget w w-2 from=w", "Secret s impostor by=w-2"}
	c := clusterOf(existing...)
	c.Kinds[schema.GroupKind{Group: "example.com", Kind: "Widget"}] = Kind{Resource: resources()["Widget"], Namespaced: true}
	p := New(kept, c, Options{})
	same(t, "made", carryOut(t, p), "1 of-secret", "1 of-set")
	same(t, "told", tells(p),
		"Made of-secret: without its owner Secret s, which was not restored",
		"Made of-set: without its owner ReplicaSet web-1, which is another object now: only --relink makes it its owner",
		"MadeBefore web", "MadeBefore w", "Remade web-1",
		"Occupied s: another object has its name, and names a Widget.example.com as its controller: check whether it has the deleted content")
	if got := p.Report().Missing(); got != 1 {
		t.Errorf("%d objects are missing, want the Secret", got)
	}
	same(t, "with --relink", carryOut(t, New(kept, c, Options{Relink: true})), "1 of-secret < impostor", "1 of-set < new")
}

// The same during the undo: another object takes the name after the owner was created.
func TestR29_ControllerReferencesProveNothingMeanwhile(t *testing.T) {
	p := New(keptAll("Deployment web", "Secret s < Deployment/web!", "ConfigMap c < Secret/s"), clusterOf(), Options{})
	p.Made(p.steps["web"], "web-2", nil)
	p.Found(p.steps["s"], Existing{UID: "impostor", Owners: []metav1.OwnerReference{{UID: "web-2", Controller: new(true)}}})
	if o, _ := p.Object(p.steps["c"], false); p.steps["s"].Outcome != Occupied || len(o.GetOwnerReferences()) != 0 {
		t.Errorf("%s, and its dependent has %v", p.steps["s"].Outcome, o.GetOwnerReferences())
	}
}

// Pods are left to the controller that creates new ones, even if another controller recreated its object.
func TestR29_PodsOfWhatIsMadeAnew(t *testing.T) {
	kept := keptAll("Widget w", "Deployment web < Widget/w!", "ReplicaSet web-1 < Deployment/web!", "Pod p < ReplicaSet/web-1!")
	c := clusterOf("Widget w w-2 from=w", "Deployment web new by=w-2", "ReplicaSet web-1 other by=new")
	c.Kinds[schema.GroupKind{Group: "example.com", Kind: "Widget"}] = Kind{Resource: resources()["Widget"], Namespaced: true}
	same(t, "told", tells(New(kept, c, Options{})), "MadeBefore w", "Remade web-1", "LeftOut p: it ran; ReplicaSet web-1 makes another one",
		"Occupied web: another object has its name, and names a Widget.example.com as its controller: check whether it has the deleted content")
}

// A volume is created after its own claim, and only for that claim.
func TestR29_VolumesOfOtherClaims(t *testing.T) {
	kept := keptAll("PersistentVolume v", "Deployment d", "PersistentVolumeClaim c < Deployment/d!")
	kept[0].Object.Object["spec"] = map[string]any{"claimRef": map[string]any{"namespace": "shop", "name": "c", "uid": "c"}}
	kept[2].Object.Object["spec"] = map[string]any{"volumeName": "v"}
	p := New(kept, clusterOf(), Options{})
	carryOut(t, p)
	if v, _ := p.Object(p.steps["v"], true); p.steps["v"].Wave <= p.steps["c"].Wave || p.claimOf(v, "") == nil {
		t.Errorf("the volume is made in wave %d, its claim in %d", p.steps["v"].Wave, p.steps["c"].Wave)
	} else if uid, differs := p.Claim(v); uid != "c-2" || differs {
		t.Errorf("the volume is not for its claim: %v", v.Object["spec"])
	}
	// Either the volume has stayed, or it was deleted, too.
	for _, line := range []string{"PersistentVolume v v", "ConfigMap x x"} {
		p = New(kept, clusterOf(line, "Deployment d d-2 from=d", "PersistentVolumeClaim c impostor by=d-2"), Options{})
		carryOut(t, p)
		if uid, _ := p.Claim(kept[0].Object); uid != "" || len(p.Volumes()) != 0 || p.steps["v"].Outcome == Made {
			t.Errorf("%s: the impostor %s gets the volume: %v", line, uid, tells(p))
		}
	}
	p = New(kept, clusterOf("Deployment d d-2 from=d"), Options{})
	p.Found(p.steps["c"], Existing{UID: "impostor"})
	if _, why := p.Object(p.steps["v"], true); why == "" {
		t.Error("the volume is made for a claim that took the name meanwhile")
	}
}

// A namespace of the same name does not get the deleted contents, and its service account is not changed.
func TestR29_OtherNamespaceOfTheNameGetsNoContents(t *testing.T) {
	kept := keptAll("Namespace shop", "Secret s", "ServiceAccount default")
	other := clusterOf("Namespace shop other", "ServiceAccount default theirs")
	same(t, "told", tells(New(kept, other, Options{})), "Occupied shop: another object has its name", "Occupied default: another object has its name",
		"Failed s: another namespace has the name of its own, which only --relink takes for it")
	same(t, "with --relink", carryOut(t, New(kept, other, Options{Relink: true})), "1 s")
	p := New(kept, clusterOf("Namespace shop shop-2 from=shop", "ServiceAccount default new"), Options{})
	same(t, "made again", tells(p), "Made s", "MadeBefore shop", "Remade default")
	if p.present["default"] != "" {
		t.Error("an account that was not made by the undo counts as an owner")
	}
}

// R29: a volume whose claim is not restored with it is for nobody: it keeps the UID of that claim. It is not created if its
// reclaim policy would delete the storage then. If the claim exists, the volume is for it.
func TestR29_VolumeWithoutItsClaimIsForNobody(t *testing.T) {
	leftOut := "PersistentVolumeClaim c < Pod/p" // with its pod, which had finished
	for name, test := range map[string]struct {
		policy   string
		claim    string // among the kept objects; empty for none
		existing []string
		relink   bool
		uid      string // in the claimRef; empty if the volume is not created
	}{
		"Retain":                                                {policy: "Retain", uid: "c"},
		"Delete":                                                {policy: "Delete"},
		"Recycle":                                               {policy: "Recycle"},
		"Retain, the claim is left out":                         {policy: "Retain", claim: leftOut, uid: "c"},
		"Delete, the claim is left out":                         {policy: "Delete", claim: leftOut},
		"Delete, the claim exists":                              {policy: "Delete", existing: []string{"PersistentVolumeClaim c c"}, uid: "c"},
		"Delete, the claim was undone":                          {policy: "Delete", existing: []string{"PersistentVolumeClaim c c-1 from=c"}, uid: "c-1"},
		"Retain, another claim":                                 {policy: "Retain", existing: []string{"PersistentVolumeClaim c impostor"}, uid: "c"},
		"Delete, another claim":                                 {policy: "Delete", existing: []string{"PersistentVolumeClaim c impostor"}},
		"Delete, another claim, --relink":                       {policy: "Delete", existing: []string{"PersistentVolumeClaim c chosen"}, relink: true, uid: "chosen"},
		"Delete, bound to it, --relink":                         {policy: "Delete", existing: []string{"PersistentVolumeClaim c chosen bound=v"}, relink: true, uid: "chosen"},
		"Delete, bound to another volume, --relink":             {policy: "Delete", existing: []string{"PersistentVolumeClaim c chosen bound=w"}, relink: true},
		"Retain, bound to another volume, --relink":             {policy: "Retain", existing: []string{"PersistentVolumeClaim c chosen bound=w"}, relink: true, uid: "c"},
		"Delete, kept claim, --relink":                          {policy: "Delete", claim: "PersistentVolumeClaim c", existing: []string{"PersistentVolumeClaim c chosen"}, relink: true, uid: "chosen"},
		"Delete, kept claim, bound to another volume, --relink": {policy: "Delete", claim: "PersistentVolumeClaim c", existing: []string{"PersistentVolumeClaim c chosen bound=w"}, relink: true},
		"Retain, kept claim, bound to another volume, --relink": {policy: "Retain", claim: "PersistentVolumeClaim c", existing: []string{"PersistentVolumeClaim c chosen bound=w"}, relink: true, uid: "c"},
		"Delete, the claim is being deleted":                    {policy: "Delete", existing: []string{"PersistentVolumeClaim c c terminating"}},
	} {
		t.Run(name, func(t *testing.T) {
			lines := []string{"PersistentVolume v"}
			if test.claim != "" {
				lines = append(lines, test.claim, "Pod p")
			}
			kept := keptAll(lines...)
			kept[0].Object.Object["spec"] = map[string]any{
				"claimRef": map[string]any{"namespace": "shop", "name": "c", "uid": "c", "resourceVersion": "3"}, "persistentVolumeReclaimPolicy": test.policy,
			}
			if test.claim != "" {
				kept[1].Object.Object["spec"] = map[string]any{"volumeName": "v"}
				kept[2].Object.Object["status"] = map[string]any{"phase": "Succeeded"}
			}
			if places := Places(kept, clusterOf().Kinds); !slices.Contains(places, Place{claimKind, "shop", "c"}) {
				t.Errorf("the claim is not read: %v", places)
			}
			p := New(kept, clusterOf(test.existing...), Options{Relink: test.relink})
			v := p.steps["v"]
			if isMade := v.Outcome == Made; isMade != (test.uid != "") || !isMade && (v.Outcome != Failed || v.Why == "") {
				t.Fatalf("%v", tells(p))
			}
			if test.uid == "" {
				return
			}
			o, why := p.Object(v, true)
			if why != "" {
				t.Fatal(why)
			}
			uid, _, _ := unstructured.NestedString(o.Object, "spec", "claimRef", "uid")
			if _, has, _ := unstructured.NestedString(o.Object, "spec", "claimRef", "resourceVersion"); uid != test.uid || has {
				t.Errorf("the volume is for %v, want %s", o.Object["spec"], test.uid)
			}
			if isNoted := len(v.Notes) > 0 && strings.Contains(strings.Join(v.Notes, " "), "is not restored"); isNoted != (test.uid == "c" && test.policy == "Retain") {
				t.Errorf("%v", tells(p))
			}
		})
	}
}

// R29: a claim that took the name, and names the volume, does not get it: the volume was bound to another one.
func TestR29_ClaimThatWasNeverBoundGetsNoVolume(t *testing.T) {
	kept := keptAll("PersistentVolume v", "PersistentVolumeClaim c")
	kept[0].Object.Object["spec"] = map[string]any{
		"claimRef": map[string]any{"namespace": "shop", "name": "c", "uid": "former"}, "persistentVolumeReclaimPolicy": "Retain",
	}
	kept[1].Object.Object["spec"] = map[string]any{"volumeName": "v"}
	p := New(kept, clusterOf(), Options{})
	carryOut(t, p)
	o, why := p.Object(p.steps["v"], true)
	if uid, _, _ := unstructured.NestedString(o.Object, "spec", "claimRef", "uid"); why != "" || uid != "former" {
		t.Errorf("the volume is for %q, %s", uid, why)
	}
	if _, differs := p.Claim(o); differs {
		t.Error("the second write gives it the volume")
	}
}

// R29: a claim that could not be read is not gone. Its volume is created only if no policy would delete the storage, and the
// report does not advise to give the volume to another claim.
func TestR29_VolumeOfUnreadClaim(t *testing.T) {
	for name, test := range map[string]struct {
		policy, claim, want string
	}{
		"Retain":                            {"Retain", "", "Made v: its claim shop/c could not be read (503): if an undo has created the claim again, run the same undo again once the claim can be read"},
		"Delete":                            {"Delete", "", "Failed v: its claim shop/c could not be read (503), and without the claim its storage would be lost by its reclaim policy Delete: run the same undo again once the claim can be read"},
		"Delete, the claim was not deleted": {"Delete", "PersistentVolumeClaim c", "Failed v: its claim shop/c could not be read (503), and without the claim its storage would be lost by its reclaim policy Delete: run the same undo again once the claim can be read"},
	} {
		t.Run(name, func(t *testing.T) {
			kept := keptAll("PersistentVolume v")
			kept[0].Object.Object["spec"] = map[string]any{
				"claimRef": map[string]any{"namespace": "shop", "name": "c", "uid": "c"}, "persistentVolumeReclaimPolicy": test.policy,
			}
			if test.claim != "" {
				kept = append(kept, keptAll(test.claim)...)
				kept[1].Stays = true
				kept[1].Object.Object["spec"] = map[string]any{"volumeName": "v"}
			}
			cluster := clusterOf()
			cluster.Unread = map[Place]string{{claimKind, "shop", "c"}: "503"}
			if told := tells(New(kept, cluster, Options{})); !slices.Contains(told, test.want) {
				t.Errorf("%q, want %q", told, test.want)
			}
		})
	}
}

// R29: a later undo reserves a volume for its claim, which an earlier undo could not read, or which did not exist then. A
// volume that is reserved for another claim meanwhile stays with that.
func TestR29_VolumeOfUnreadClaimIsLinkedLater(t *testing.T) {
	for name, test := range map[string]struct {
		claim  string // that exists
		relink bool
		now    map[string]any // the claimRef of the volume
		uid    string         // that it gets; empty for no change
	}{
		"created again":                     {claim: "c-2 from=c", now: map[string]any{"namespace": "shop", "name": "c", "uid": "c"}, uid: "c-2"},
		"linked before":                     {claim: "c-2 from=c", now: map[string]any{"namespace": "shop", "name": "c", "uid": "c-2"}},
		"given to another claim":            {claim: "c-2 from=c", now: map[string]any{"namespace": "shop", "name": "d", "uid": "d"}},
		"moved to another name":             {claim: "c-2 from=c", now: map[string]any{"namespace": "shop", "name": "d", "uid": "c"}},
		"released by a user":                {claim: "c-2 from=c"},
		"open to the name":                  {claim: "c-2 from=c", now: map[string]any{"namespace": "shop", "name": "c"}},
		"never deleted":                     {claim: "c", now: map[string]any{"namespace": "shop", "name": "c", "uid": "c"}},
		"another claim":                     {claim: "impostor", now: map[string]any{"namespace": "shop", "name": "c", "uid": "c"}},
		"another claim, --relink":           {claim: "chosen", relink: true, now: map[string]any{"namespace": "shop", "name": "c", "uid": "c"}, uid: "chosen"},
		"bound to it, --relink":             {claim: "chosen bound=v", relink: true, now: map[string]any{"namespace": "shop", "name": "c", "uid": "c"}, uid: "chosen"},
		"bound to another volume, --relink": {claim: "chosen bound=w", relink: true, now: map[string]any{"namespace": "shop", "name": "c", "uid": "c"}},
		"bound before the undo":             {claim: "c-2 from=c bound=v", now: map[string]any{"namespace": "shop", "name": "c", "uid": "c"}, uid: "c-2"},
		"created, being deleted":            {claim: "c-2 from=c terminating", now: map[string]any{"namespace": "shop", "name": "c", "uid": "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			kept := keptAll("PersistentVolume v")
			kept[0].Object.Object["spec"] = map[string]any{
				"claimRef": map[string]any{"namespace": "shop", "name": "c", "uid": "c"}, "persistentVolumeReclaimPolicy": "Retain",
			}
			p := New(kept, clusterOf("PersistentVolume v v-2 from=v", "PersistentVolumeClaim c "+test.claim), Options{Relink: test.relink})
			there := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "v", "uid": "v-2"}, "spec": map[string]any{}}}
			if test.now != nil {
				there.Object["spec"] = map[string]any{"claimRef": test.now}
			}
			uid, differs := p.Claim(there)
			if differs != (test.uid != "") || differs && string(uid) != test.uid {
				t.Errorf("the volume gets %q, %t; want %q", uid, differs, test.uid)
			}
			if test.uid != "" && !slices.Equal(p.Volumes(), []string{"v"}) {
				t.Errorf("the volumes to write are %q", p.Volumes())
			}
			if strings.Contains(test.claim, "bound=w") && len(p.Volumes()) > 0 {
				t.Errorf("the claim is bound to another volume, and the volumes to write are %q", p.Volumes())
			}
			p.VolumeFailed("v", "no right")
			if !slices.Contains(p.steps["v"].Notes, "it is still reserved for the old UID of the claim: no right") {
				t.Errorf("%q", tells(p))
			}
		})
	}
}

// R29: with --relink, a claim that took the name does not get a volume that was not deleted, if the claim is bound to another
// one: the controller of volumes would delete the former volume. The same if it took the name after the plan.
func TestR29_ClaimOfAnotherVolumeGetsNoVolume(t *testing.T) {
	claimRef := map[string]any{"namespace": "shop", "name": "c", "uid": "c"}
	for volume, want := range map[string]types.UID{"": "chosen", "v": "chosen", "w": ""} {
		kept := keptAll("PersistentVolumeClaim c")
		kept[0].Object.Object["spec"] = map[string]any{"volumeName": "v"}
		there := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "v", "uid": "v"}, "spec": map[string]any{"claimRef": claimRef}}}
		p := New(kept, clusterOf("PersistentVolume v v", "PersistentVolumeClaim c chosen bound="+volume), Options{Relink: true})
		if uid, differs := p.Claim(there); uid != want || differs != (want != "") || (len(p.Volumes()) > 0) != differs {
			t.Errorf("the claim of volume %q: the volume v gets %q, %t; to write: %q", volume, uid, differs, p.Volumes())
		}
		kept = append(kept, keptAll("PersistentVolume v")...)
		kept[1].Object.Object["spec"] = map[string]any{"claimRef": claimRef, "persistentVolumeReclaimPolicy": "Retain"}
		p = New(kept, clusterOf(), Options{Relink: true})
		p.Found(p.steps["c"], Existing{UID: "chosen", VolumeName: volume})
		o, why := p.Object(p.steps["v"], true)
		uid, _, _ := unstructured.NestedString(o.Object, "spec", "claimRef", "uid")
		isNoted := strings.Contains(strings.Join(p.steps["v"].Notes, " "), "the present one is bound to volume w")
		if why != "" || types.UID(uid) != cmp.Or(want, "c") || isNoted != (want == "") {
			t.Errorf("the claim of volume %q took the name meanwhile: v is for %q, %s; %q", volume, uid, why, tells(p))
		}
	}
}

// R29: the plan needs the volumes of claims that only --relink accepts, and of no others.
func TestR29_VolumesOfOtherClaimsAreRead(t *testing.T) {
	kept := keptAll("PersistentVolume v", "PersistentVolumeClaim c", "PersistentVolumeClaim d", "ConfigMap x")
	kept[0].Object.Object["spec"] = map[string]any{"claimRef": map[string]any{"namespace": "shop", "name": "e", "uid": "e"}}
	for line, want := range map[string]bool{
		"PersistentVolumeClaim c other": true, "PersistentVolumeClaim e other": true, "PersistentVolumeClaim c c": false, "PersistentVolumeClaim e e-2 from=e": false,
		"PersistentVolumeClaim f other": false, "ConfigMap x other": false,
	} {
		if got := clusterOf(line).OtherClaims(kept); (len(got) == 1) != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}
