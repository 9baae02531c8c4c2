package cri

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"
)

// crowded returns the record of an image that was pulled by a name, and then by many names of a tenant.
func crowded(name string, others int) *pulledImage {
	p := &pulledImage{ID: "id-dns"}
	p.add(namedPull{image: name, access: imageAccess{Everybody: true}}, nil)
	for i := range others {
		p.add(namedPull{image: fmt.Sprintf("evil.io/x%d:1", i), access: imageAccess{Everybody: true}}, nil)
	}
	return p
}

// TestLeastRecentlyUsedNameIsDropped checks that a tenant who pulls an image by many names does not displace a name that is
// used now and then, and that a new name is always kept.
func TestLeastRecentlyUsedNameIsDropped(t *testing.T) {
	p := crowded(coredns, mostNames-2)
	for i := range 5 * mostNames {
		p.add(namedPull{image: fmt.Sprintf("evil.io/y%d:1", i), access: imageAccess{Everybody: true}}, nil)
		if i%(mostNames/2) == 0 {
			p.use(coredns)
		}
		if i%(mostNames/2) == 1 {
			p.add(namedPull{image: "quay.io/a/pulled:1", access: imageAccess{Everybody: true}}, nil)
		}
		if len(p.Names) > mostNames || !p.Names[repositoryName(fmt.Sprintf("evil.io/y%d", i))].Everybody {
			t.Fatalf("%d names after %d others, or the last one is missing", len(p.Names), i)
		}
	}
	if !p.Names[repositoryName(coredns)].Everybody || !p.Names["quay.io/a/pulled"].Everybody {
		t.Error("a name that is in use was dropped")
	}
	if _, isKept := p.Names["evil.io/x0"]; isKept {
		t.Error("a name is kept that nobody uses")
	}
	p = crowded(coredns, mostNames-1)
	p.add(namedPull{image: "evil.io/one-too-many"}, nil)
	if len(p.Names) != mostNames || !p.Names[repositoryName(coredns)].Everybody {
		t.Error("a name without access has displaced another one")
	}
}

// TestManyNamesDisplaceNoOther checks that the names of a tenant displace neither the name of another namespace nor one that
// a pod on the node has in its spec.
func TestManyNamesDisplaceNoOther(t *testing.T) {
	n, s := withStore(t, map[string]string{coredns: "id-dns"})
	inUse := []string{"quay.io/b/used:1", "quay.io/b/init:1", "quay.io/b/debug:1"}
	record := &pulledImage{ID: "id-dns"}
	record.add(namedPull{image: coredns, namespace: "bob", access: imageAccess{Everybody: true}}, nil)
	for _, image := range inUse { // first pulled by the tenant
		s.save(image, "id-dns")
		record.add(namedPull{image: image, namespace: "mal", access: imageAccess{Everybody: true}}, nil)
	}
	for i := range mostNames - len(record.Names) {
		record.add(namedPull{image: fmt.Sprintf("evil.io/x%d:1", i), namespace: "mal", access: imageAccess{Everybody: true}}, nil)
	}
	if err := writeRecord(recordPath(n.runtime.records.pulled(), "id-dns"), record); err != nil {
		t.Fatal(err)
	}
	pod := aPod()
	pod.Spec.Containers[0].Image, pod.Spec.InitContainers = "quay.io/b/used:1", []corev1.Container{{Image: "quay.io/b/init:2"}}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Image: "quay.io/b/debug:1"}}}
	n.runtime.Adopt(pod) // the agent has started again, and has seen nothing else of the pod
	pullSome := func(prefix string) {
		t.Helper()
		for i := range 5 {
			name := fmt.Sprintf("evil.io/%s%d:1", prefix, i)
			s.registry[name] = "id-dns"
			n.want("the tenant", "mal", name, corev1.PullIfNotPresent, 1, "")
		}
	}
	pullSome("y")
	for _, image := range append(inUse, coredns) {
		n.want("kept", "eve", image, corev1.PullNever, 0, "")
	}
	n.want("of the tenant", "eve", "evil.io/y4:1", corev1.PullNever, 0, "")
	n.runtime.drop(pod.UID)
	record, err := n.runtime.records.readLocked("id-dns")
	if err != nil || len(record.Names) != mostNames {
		t.Errorf("%d names, %v", len(record.Names), err)
	}
	pullSome("z")
	n.want("kept", "bob", coredns, corev1.PullNever, 0, "")
}

// TestNamesInUseExceedTheLimit checks that no name is dropped while all are in use, and that the limit holds again later.
func TestNamesInUseExceedTheLimit(t *testing.T) {
	p, inUse := &pulledImage{}, usedNames{}
	for i := range 2 * mostNames {
		name := fmt.Sprintf("evil.io/x%d:1", i)
		inUse.add(repositoryName(name), "mal")
		p.add(namedPull{image: name, namespace: "mal", access: imageAccess{Everybody: true}}, inUse)
	}
	if len(p.Names) != 2*mostNames {
		t.Errorf("%d names", len(p.Names))
	}
	p.add(namedPull{image: coredns, namespace: "bob", access: imageAccess{Everybody: true}}, nil)
	if len(p.Names) != mostNames || !p.Names[repositoryName(coredns)].Everybody {
		t.Errorf("%d names", len(p.Names))
	}
}

// TestNamesInUseAreBounded checks that a tenant whose pods name an image in many ways keeps a bounded number of its names, the
// last ones, and displaces no name that a pod of another namespace has in its spec, whoever has pulled that name first.
func TestNamesInUseAreBounded(t *testing.T) {
	p, inUse := &pulledImage{}, usedNames{}
	pull := func(image string) {
		inUse.add(repositoryName(image), "mal")
		p.add(namedPull{image: image, namespace: "mal", access: imageAccess{Everybody: true}}, inUse)
	}
	inUse.add("quay.io/b/used", "bob")
	pull("quay.io/b/used:1")
	for i := range 3 * mostNamesInUse {
		pull(fmt.Sprintf("evil.io/x%d:1", i))
		if want := min(i+1, mostNamesInUse) + 1; len(p.Names) != want {
			t.Fatalf("%d names after %d others, want %d", len(p.Names), i+1, want)
		}
	}
	if !p.Names["quay.io/b/used"].Everybody {
		t.Error("a name that a pod of bob uses was dropped")
	}
	for i := range 3 * mostNamesInUse {
		if isKept := p.Names[fmt.Sprintf("evil.io/x%d", i)].Everybody; isKept != (i >= 2*mostNamesInUse) {
			t.Errorf("name %d: %t", i, isKept)
		}
	}
}

// TestPodWithManyNamesIsBounded checks that a pull trims a record that has many names of one pod, but keeps the names of pods
// of other namespaces.
func TestPodWithManyNamesIsBounded(t *testing.T) {
	n, s := withStore(t, map[string]string{coredns: "id-dns"})
	record := &pulledImage{ID: "id-dns", Names: map[string]namedAccess{}}
	pods := map[string]*corev1.Pod{}
	for _, namespace := range []string{"mal", "bob", "cid"} {
		pods[namespace] = aPod()
		pods[namespace].Namespace, pods[namespace].UID = namespace, types.UID(namespace)
	}
	pods["mal"].Spec.InitContainers = []corev1.Container{{Image: alias}}
	for i := range 3 * mostNamesInUse {
		image := fmt.Sprintf("evil.io/z%d:1", i)
		record.Names[repositoryName(image)] = namedAccess{imageAccess{Everybody: true}, "mal", uint64(i + 2)}
		pods["mal"].Spec.InitContainers = append(pods["mal"].Spec.InitContainers, corev1.Container{Image: image})
	}
	for i, namespace := range []string{"bob", "cid"} {
		image := "quay.io/" + namespace + "/used:1"
		s.save(image, "id-dns")
		record.Names[repositoryName(image)] = namedAccess{imageAccess{Everybody: true}, "mal", uint64(i)}
		pods[namespace].Spec.InitContainers = []corev1.Container{{Image: image}}
	}
	if err := writeRecord(recordPath(n.runtime.records.pulled(), "id-dns"), record); err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		n.runtime.Update(pod)
	}
	n.want("the tenant", "mal", alias, corev1.PullIfNotPresent, 1, "")
	record, err := n.runtime.records.readLocked("id-dns")
	if want := mostNamesInUse + 2; err != nil || len(record.Names) != want { // with those of bob and cid
		t.Errorf("%d names, %v, want %d", len(record.Names), err, want)
	}
	for _, image := range []string{alias, "quay.io/bob/used:1", "quay.io/cid/used:1"} {
		n.want("kept", "eve", image, corev1.PullNever, 0, "")
	}
}

// TestSpareNamesAreThoseOfSingleDrops checks the order in which names are dropped, by a model that drops one after the other.
func TestSpareNamesAreThoseOfSingleDrops(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, inUse := &pulledImage{Names: map[string]namedAccess{}}, usedNames{}
		counts := map[string]int{}
		var spare []string
		for i, namespace := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 12).Draw(t, "namespaces") {
			name := fmt.Sprintf("evil.io/x%02d", i)
			p.Names[name] = namedAccess{Namespace: namespace, Used: rapid.Uint64Range(0, 8).Draw(t, "used")}
			counts[namespace]++
			if rapid.Bool().Draw(t, "is in use") {
				inUse.add(name, "d")
			} else {
				spare = append(spare, name)
			}
		}
		var want []string
		for len(spare) > 0 {
			first := slices.MinFunc(spare, func(a, b string) int {
				x, y := p.Names[a], p.Names[b]
				return cmp.Or(cmp.Compare(counts[y.Namespace], counts[x.Namespace]), cmp.Compare(x.Used, y.Used))
			})
			counts[p.Names[first].Namespace]--
			spare = slices.DeleteFunc(spare, func(name string) bool { return name == first })
			want = append(want, first)
		}
		if got := p.spareNames("next", inUse); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// TestManySecretsDisplaceNoOther checks that the pull secrets of a namespace do not displace that of another one, and that a
// new one is always kept.
func TestManySecretsDisplaceNoOther(t *testing.T) {
	bob := secretUse{Namespace: "bob", Name: "pull", UID: "bob"}
	a := imageAccess{Secrets: []secretUse{bob}}
	for i := range 3 * mostUses {
		mal := secretUse{Namespace: "mal", Name: "pull", UID: types.UID(strconv.Itoa(i))}
		a = a.with(imageAccess{Secrets: []secretUse{mal}})
		if len(a.Secrets) > mostUses || !a.allows([]secretUse{bob}) || !a.allows([]secretUse{mal}) {
			t.Fatalf("after %d secrets, %d are kept, or not that of bob, or not the last one", i, len(a.Secrets))
		}
	}
	for i := range 3 * mostUses {
		other := secretUse{Namespace: strconv.Itoa(i), Name: "pull", UID: types.UID(strconv.Itoa(i))}
		if a = a.with(imageAccess{Secrets: []secretUse{other}}); len(a.Secrets) > mostUses || !a.allows([]secretUse{other}) {
			t.Fatalf("after %d namespaces, %d secrets are kept, or not the last one", i, len(a.Secrets))
		}
	}
}

// TestUseOfAName checks that only the use of a name that many others follow changes a record.
func TestUseOfAName(t *testing.T) {
	for _, test := range []struct {
		name   string
		others int
		want   bool
	}{
		{coredns, 0, false},
		{coredns, mostNames/2 - 1, false},
		{coredns, mostNames / 2, true},
		{"quay.io/none", mostNames - 1, false},
	} {
		p := crowded(coredns, test.others)
		before := len(p.Names)
		if got := p.use(test.name); got != test.want || len(p.Names) != before {
			t.Errorf("%s before %d others: %t", test.name, test.others, got)
		}
		if p.use(test.name) {
			t.Errorf("%s before %d others: another change", test.name, test.others)
		}
	}
}

// TestStartedPodKeepsItsName checks that the start of a pod without a pull keeps the name of its image from being dropped.
func TestStartedPodKeepsItsName(t *testing.T) {
	n, _ := withStore(t, map[string]string{coredns: "id-dns"})
	if err := writeRecord(recordPath(n.runtime.records.pulled(), "id-dns"), crowded(coredns, mostNames-1)); err != nil {
		t.Fatal(err)
	}
	n.want("used", "bob", coredns, corev1.PullNever, 0, "")
	n.restart()
	n.want("another name", "eve", alias, corev1.PullAlways, 1, "")
	n.want("used again", "bob", coredns, corev1.PullNever, 0, "")
	n.want("the other name", "bob", alias, corev1.PullNever, 0, "")
}

// TestImageAccess checks who may use an image by which name, and that the records of an image are bounded.
func TestImageAccess(t *testing.T) {
	ann := secretUse{Namespace: "ann", Name: "pull", UID: "1", Hash: "h"}
	for name, test := range map[string]struct {
		use  secretUse
		want bool
	}{
		"the same":              {ann, true},
		"another password":      {secretUse{Namespace: "ann", Name: "pull", UID: "1", Hash: "i"}, true},
		"another secret":        {secretUse{Namespace: "bob", Name: "pull", UID: "2", Hash: "h"}, true},
		"made again":            {secretUse{Namespace: "ann", Name: "pull", UID: "2", Hash: "i"}, false},
		"without UID and hash":  {secretUse{Namespace: "ann", Name: "pull"}, false},
		"another name, one UID": {secretUse{Namespace: "ann", Name: "other", UID: "1"}, false},
	} {
		if got := (imageAccess{Secrets: []secretUse{ann}}).allows([]secretUse{{}, test.use}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if (imageAccess{Secrets: []secretUse{{Namespace: "ann", Name: "pull"}}}).allows([]secretUse{{Namespace: "ann", Name: "pull"}}) {
		t.Error("a secret that nothing identifies is the same as another one")
	}
	p := &pulledImage{}
	for i := range 2*mostNames + mostUses {
		p.add(namedPull{image: "quay.io/app:1", access: imageAccess{Secrets: []secretUse{{UID: types.UID(strings.Repeat("x", i+1))}}}}, nil)
		p.add(namedPull{image: "quay.io/" + strings.Repeat("x", i+1), access: imageAccess{Everybody: true}}, nil)
	}
	if len(p.Names) != mostNames || len(p.Names["quay.io/app"].Secrets) != mostUses {
		t.Errorf("%d names, %d secrets", len(p.Names), len(p.Names["quay.io/app"].Secrets))
	}
	if p.Names["quay.io/x"].Everybody || !p.Names["quay.io/"+strings.Repeat("x", 2*mostNames+mostUses)].Everybody {
		t.Error("the first name is kept, or the last one is not")
	}
	if hashOf("k", &runtimeapi.AuthConfig{Username: "ab", Password: "c"}) == hashOf("k", &runtimeapi.AuthConfig{Username: "a", Password: "bc"}) {
		t.Error("two credentials have one hash")
	}
}
