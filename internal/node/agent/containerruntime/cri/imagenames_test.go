package cri

import (
	"context"
	"log/slog"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

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
}

// TestPullMayBring checks for which images a pull counts. A runtime that resolves names does so for names without a registry.
func TestPullMayBring(t *testing.T) {
	ofTag := awaitedBy(t, false, "docker.io/library/app:1", "quay.io/a/tool@sha256:12")
	resolved := awaitedBy(t, true, "docker.io/library/app:1", "quay.io/a/tool@sha256:12")
	for name, test := range map[string]struct {
		image               *runtimeapi.Image
		want, whereResolved bool
	}{
		"the name":                     {&runtimeapi.Image{RepoTags: []string{"app:1"}}, true, true},
		"its full name":                {&runtimeapi.Image{RepoTags: []string{"other:1", "index.docker.io/app:1"}}, true, true},
		"another tag":                  {&runtimeapi.Image{RepoTags: []string{"app:2"}}, false, false},
		"another tag, and a digest":    {&runtimeapi.Image{RepoTags: []string{"app:2"}, RepoDigests: []string{"app@sha256:12"}}, false, false},
		"the tag has moved":            {&runtimeapi.Image{RepoDigests: []string{"app@sha256:12"}}, true, true},
		"moved, and of another one":    {&runtimeapi.Image{RepoTags: []string{"other:1"}, RepoDigests: []string{"app@sha256:12"}}, true, true},
		"another registry":             {&runtimeapi.Image{RepoTags: []string{"registry.test:5000/team/app:1"}}, false, true},
		"another registry, its digest": {&runtimeapi.Image{RepoDigests: []string{"registry.test:5000/team/app@sha256:12"}}, false, true},
		"another registry and tag":     {&runtimeapi.Image{RepoTags: []string{"registry.test:5000/team/app:2"}}, false, false},
		"another name":                 {&runtimeapi.Image{RepoTags: []string{"application:1"}}, false, false},
		"the digest":                   {&runtimeapi.Image{RepoDigests: []string{"quay.io/a/tool@sha256:12"}}, true, true},
		"another digest":               {&runtimeapi.Image{RepoDigests: []string{"quay.io/a/tool@sha256:13"}}, false, false},
		"a tag of a pulled digest":     {&runtimeapi.Image{RepoTags: []string{"quay.io/a/tool:1"}}, false, false},
		"a full name elsewhere":        {&runtimeapi.Image{RepoDigests: []string{"quay.io/b/tool@sha256:12"}}, false, false},
	} {
		if got := ofTag.mayBring(test.image); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
		if got := resolved.mayBring(test.image); got != test.whereResolved {
			t.Errorf("%s, where the runtime resolves names: %t", name, got)
		}
	}
	unnamed := &runtimeapi.Image{Id: "1"}
	if !ofTag.mayBring(unnamed) || ofTag.mayHaveBrought(unnamed) || awaitedBy(t, true).mayBring(unnamed) {
		t.Error("an image without a name is not used while a pull may name it, and only then; nothing closes it")
	}
}

// TestImageOfAnAlias checks that a pull counts for the image that the runtime has for its name, whatever names that has.
func TestImageOfAnAlias(t *testing.T) {
	r, err := openImageRecords(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.begin("app:1", "ann", imageList{}); err != nil {
		t.Fatal(err)
	}
	there := &runtimeapi.Image{Id: "id-new", RepoTags: []string{"registry.test/product/server:1"}}
	for _, image := range []string{"app:1", "docker.io/library/app:1"} {
		if got, err := r.accessTo(image, there); err != nil || got.Everybody {
			t.Errorf("%s is for everybody, %v", image, err)
		}
	}
	if got, err := r.accessTo("registry.test/product/server:1", there); err != nil || !got.Everybody {
		t.Errorf("an image that the pull does not name: %+v, %v", got, err)
	}
}

// namedRuntime is a container runtime with another name.
type namedRuntime struct {
	*fake

	name string
}

// Version implements internalapi.RuntimeVersioner.
func (n namedRuntime) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: n.name}, nil
}

// TestRuntimeThatResolvesNames checks which runtimes count as such that resolve names without a registry.
func TestRuntimeThatResolvesNames(t *testing.T) {
	for name, want := range map[string]bool{"cri-o": true, "containerd": false} {
		f := newFake()
		r, err := open(t.Context(), Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}, services{namedRuntime{f, name}, f.images})
		if err != nil || r.records.resolvesNames != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// awaitedBy returns the names that pulls of references may give.
func awaitedBy(t *testing.T, resolves bool, references ...string) awaited {
	t.Helper()
	r, err := openImageRecords(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r.resolvesNames = resolves
	for _, reference := range references {
		if _, err := r.begin(reference, "ann", imageList{}); err != nil {
			t.Fatal(err)
		}
	}
	return r.awaitedLocked(anyIntent)
}
