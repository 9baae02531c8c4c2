package cri

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// crowded returns the record of an image that was pulled by a name, and then by many names of a tenant.
func crowded(name string, others int) *pulledImage {
	p := &pulledImage{ID: "id-dns"}
	p.add(name, imageAccess{Everybody: true})
	for i := range others {
		p.add(fmt.Sprintf("evil.io/x%d:1", i), imageAccess{Everybody: true})
	}
	return p
}

// TestLeastRecentlyUsedNameIsDropped checks that a tenant who pulls an image by many names does not displace a name that is
// used now and then, and that a new name is always kept.
func TestLeastRecentlyUsedNameIsDropped(t *testing.T) {
	p := crowded(coredns, mostNames-2)
	for i := range 5 * mostNames {
		p.add(fmt.Sprintf("evil.io/y%d:1", i), imageAccess{Everybody: true})
		if i%(mostNames/2) == 0 {
			p.use(coredns)
		}
		if i%(mostNames/2) == 1 {
			p.add("quay.io/a/pulled:1", imageAccess{Everybody: true})
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
	p.add("evil.io/one-too-many", imageAccess{})
	if len(p.Names) != mostNames || !p.Names[repositoryName(coredns)].Everybody {
		t.Error("a name without access has displaced another one")
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
		p.add("quay.io/app:1", imageAccess{Secrets: []secretUse{{UID: types.UID(strings.Repeat("x", i+1))}}})
		p.add("quay.io/"+strings.Repeat("x", i+1), imageAccess{Everybody: true})
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

func TestFullReference(t *testing.T) {
	for image, want := range map[string]string{
		"app":                      "docker.io/library/app:latest",
		"app:1":                    "docker.io/library/app:1",
		"docker.io/app:1":          "docker.io/library/app:1",
		"index.docker.io/app:1":    "docker.io/library/app:1",
		"docker.io/a/app":          "docker.io/a/app:latest",
		"index.docker.io/a/app":    "docker.io/a/app:latest",
		"a/app":                    "docker.io/a/app:latest",
		"docker.io/app@sha256:12":  "docker.io/library/app@sha256:12",
		"localhost/app":            "localhost/app:latest",
		"registry.test:5000/app":   "registry.test:5000/app:latest",
		"registry.test:5000/app:1": "registry.test:5000/app:1",
		"quay.io/app@sha256:12":    "quay.io/app@sha256:12",
		"quay.io/app:1@sha256:12":  "quay.io/app@sha256:12",
	} {
		if got := fullReference(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
	got := lastNames(&runtimeapi.Image{RepoTags: []string{"app:1"}, RepoDigests: []string{"quay.io/a/other@sha256:12"}})
	if want := []string{"app", "other"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
