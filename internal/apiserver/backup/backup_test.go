package backup

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"

	"github.com/coppice-dev/coppice/internal/apiserver/keyfile"
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/undo"
)

func secret(name string) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(name), ResourceVersion: "5"},
		StringData: map[string]string{"password": "hunter2"},
	}
}

func TestSealedBackupOpensWithItsKeyAlone(t *testing.T) {
	dir := t.TempDir()
	key, made, err := keyfile.LoadOrMakeKey(filepath.Join(dir, "new", "key"))
	if err != nil || !made {
		t.Fatal(made, err)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"kind": "Secret", "apiVersion": "v1", "data": map[string]any{"n": int64(3), "password": "hunter2"}}}
	kept := []undo.Kept{{Resource: corev1.SchemeGroupVersion.WithResource("secrets"), Object: o, Requested: true, Finalizers: []string{"x"}}, {Object: o, Stays: true, Earlier: true}}
	content, err := Seal(Content{kept, []string{"leases: forbidden"}}, key, time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(content, []byte("hunter2")) || bytes.Contains(content, []byte("Secret")) || bytes.Contains(content, []byte("leases")) {
		t.Error("the content can be read")
	}
	opened, header, err := Open(content, key)
	got := opened.Kept
	if !slices.Equal(opened.Lacks, []string{"leases: forbidden"}) {
		t.Errorf("the backup lacks %q", opened.Lacks)
	}
	if err != nil || header.Objects != 2 || len(got) != 2 || !got[0].Requested || got[0].Earlier || !got[1].Stays || !got[1].Earlier || got[0].Finalizers[0] != "x" {
		t.Fatalf("%v, %v, %v", got, header, err)
	}
	if n, _, _ := unstructured.NestedInt64(got[0].Object.Object, "data", "n"); n != 3 {
		t.Errorf("got %v", got[0].Object)
	}
	changed := slices.Clone(content)
	changed[len(changed)-1] ^= 1
	header2 := bytes.Replace(content, []byte(`"objects":2`), []byte(`"objects":3`), 1)
	other, _, err := keyfile.LoadOrMakeKey(filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		content []byte
		key     *keyfile.Key
		want    string
	}{
		"changed":          {changed, key, "it was changed"},
		"a changed header": {header2, key, "it was changed"},
		"another key":      {content, other, "encrypted with the key " + key.ID()},
		"something else":   {[]byte("x"), key, "it is no backup"},
	} {
		if _, _, err := Open(test.content, test.key); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	same, made, err := keyfile.LoadOrMakeKey(filepath.Join(dir, "other"))
	if err != nil || made || same.ID() != other.ID() {
		t.Errorf("the key is made twice: %v", err)
	}
}

func TestExistingFileIsNotOverwritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if err := Write(path, []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("2")); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("got %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "1" {
		t.Errorf("%q, %v", text, err)
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
}

// Read returns only unchanged objects, and reports the others, whether it gets or lists them.
func TestChangedObjectsAreNotRead(t *testing.T) {
	for _, count := range []int{4, fewGets + 4} {
		scheme := runtime.NewScheme()
		if err := corev1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		var there []runtime.Object
		var wanted []Wanted
		for n := range count {
			o := secret(strings.Repeat("a", n+1))
			version, uid := "5", o.UID
			switch n {
			case 0:
				version = "4"
			case 1:
				uid = "other"
			}
			if n != 2 {
				there = append(there, o)
			}
			wanted = append(wanted, Wanted{Resource: corev1.SchemeGroupVersion.WithResource("secrets"), Namespace: "shop", Name: o.Name, UID: uid, Version: version})
		}
		kept, missed, err := Read(t.Context(), fake.NewSimpleDynamicClient(scheme, there...), wanted)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"secrets shop/a: it has changed since it was previewed", "secrets shop/aa: it is gone since it was previewed", "secrets shop/aaa: it is gone since it was previewed"}
		if len(kept) != count-3 || !slices.Equal(missed, want) {
			t.Errorf("%d: %d kept, missed %q", count, len(kept), missed)
		}
	}
}

// A backup has the objects that may go because an owner could not be read. It lacks the objects of unread resources, except
// of kinds that undo never restores.
func TestBackupKnowsWhatItLacks(t *testing.T) {
	secrets := map[schema.GroupKind]undo.Kind{{Kind: "Secret"}: {Resource: corev1.SchemeGroupVersion.WithResource("secrets"), Namespaced: true}}
	r := preview.Report{
		Objects: []preview.ObjectReport{
			{Kind: "Secret", Namespace: "shop", Name: "a", Fate: preview.Unknown}, {Kind: "Secret", Namespace: "shop", Name: "b", Fate: preview.Kept},
		},
		Unseen: []preview.UnseenReport{
			{Kind: "ConfigMap", Says: "configmaps: forbidden"}, {Kind: "Lease.coordination.k8s.io", Says: "leases: forbidden"}, {Says: "group g/v1: down"},
		},
	}
	wanted, unserved := Of(r, secrets)
	if len(wanted) != 1 || wanted[0].Name != "a" || wanted[0].Stays || len(unserved) > 0 {
		t.Errorf("%+v, %q", wanted, unserved)
	}
	if got := Unseen(r); len(got) != 2 || got[0].Says != "configmaps: forbidden" || got[1].Says != "group g/v1: down" {
		t.Errorf("%+v", got)
	}
}

// A webhook may answer with a text of any length.
func TestLineAboutAMissingObjectIsShortened(t *testing.T) {
	key, _, err := keyfile.LoadOrMakeKey(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	lacks := []string{"secrets/a: changed", strings.Repeat("x", 1<<20)}
	content, err := Seal(Content{Lacks: lacks}, key, time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := Open(content, key)
	if err != nil || len(got.Lacks) != 2 || got.Lacks[0] != lacks[0] || len(got.Lacks[1]) > 2*longestLack || !strings.HasSuffix(got.Lacks[1], "(1048576 bytes)") {
		t.Errorf("%d lines, %v", len(got.Lacks), err)
	}
	if len(lacks[1]) != 1<<20 {
		t.Error("the caller's lines have changed")
	}
}

// A backup of which everything has changed since the preview is not the largest one.
func TestLinesAboutMissingObjectsAreBounded(t *testing.T) {
	key, _, err := keyfile.LoadOrMakeKey(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	content, err := Seal(Content{Lacks: make([]string, mostLacks+7)}, key, time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := Open(content, key); err != nil || len(got.Lacks) != mostLacks+1 || got.Lacks[mostLacks] != "and 7 more" || len(got.Kept) != 0 {
		t.Errorf("%d lines, the last one is %q, %v", len(got.Lacks), got.Lacks[len(got.Lacks)-1], err)
	}
}
