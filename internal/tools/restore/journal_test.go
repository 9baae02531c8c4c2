package restore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// The journal decides which object another was recreated from, regardless of annotations.
func TestR29_AnnotationsProveNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "undone.jsonl")
	journal := opened(t, path)
	if err := journal.Open(); err != nil {
		t.Fatal(err)
	}
	if err := journal.add("again", "was"); err != nil {
		t.Fatal(err)
	}
	for _, j := range []*Journal{journal, opened(t, path), nil} {
		s := &Server{journal: j}
		for uid, want := range map[types.UID]types.UID{"again": "was", "impostor": ""} {
			if j == nil {
				want = ""
			}
			o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: uid, Annotations: map[string]string{undo.Annotation: "was"}}}
			if got := s.existing(o).UndoneFrom; got != want {
				t.Errorf("%s was made again from %q, want %q", uid, got, want)
			}
		}
	}
	if err := journal.Close(); err != nil {
		t.Fatal(err)
	}
}

func opened(t *testing.T, path string) *Journal {
	t.Helper()
	journal, err := OpenJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	return journal
}

// A journal is bounded, and an incomplete line does no harm.
func TestJournalKeepsTheNewest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "undone.jsonl")
	var text bytes.Buffer
	n := 0
	for ; text.Len() <= mostJournal; n++ {
		fmt.Fprintf(&text, `{"uid":"new-%d","from":"old-%d"}`+"\n", n, n)
	}
	text.WriteString(`{"uid":"cut`)
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := opened(t, path).Open(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > mostJournal*2/3 || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	journal := opened(t, path)
	newest := types.UID(fmt.Sprintf("new-%d", n-1))
	if journal.From("new-0") != "" || journal.From(newest) == "" {
		t.Errorf("of the oldest %q is known, of the newest %q", journal.From("new-0"), journal.From(newest))
	}
	if err := journal.Open(); err != nil {
		t.Fatal(err)
	}
	if err := journal.add("later", "before"); err != nil {
		t.Fatal(err)
	}
	if again := opened(t, path); again.From("later") != "before" {
		t.Error("a line after one that was cut off is lost")
	}
}

// TestJournalIsShortenedUnderAnUnforeseeableName: root may shorten a journal in a directory of another user, who could put a
// link to a file of root there.
func TestJournalIsShortenedUnderAnUnforeseeableName(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "undone.jsonl"), filepath.Join(dir, "other")
	if err := errors.Join(os.WriteFile(other, []byte("text"), 0o600), os.Symlink(other, path+".new"), os.WriteFile(path, bytes.Repeat([]byte("\n"), mostJournal+1), 0o600)); err != nil {
		t.Fatal(err)
	}
	journal := opened(t, path)
	if err := errors.Join(journal.Open(), journal.Close()); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "text" {
		t.Errorf("the other file has %q, %v", text, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
}
