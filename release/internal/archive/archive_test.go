package archive_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/release/internal/archive"
)

var made = time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)

// packers are the forms of archives, with what reads them: names, modes and contents.
var packers = map[string]struct {
	pack   func(io.Writer, time.Time, []archive.File) error
	unpack func(*testing.T, []byte) map[string]entry
}{
	"tar.gz": {archive.TarGz, fromTarGz},
	"zip":    {archive.Zip, fromZip},
}

type entry struct {
	mode     fs.FileMode
	modified time.Time
	text     string
}

func TestArchivesHaveTheFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "built")
	if err := os.WriteFile(path, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := map[string]entry{"coppice": {0o755, made, "program"}, "LICENSE": {0o644, made, "free"}}
	for name, p := range packers {
		t.Run(name, func(t *testing.T) {
			var packed bytes.Buffer
			err := p.pack(&packed, made, []archive.File{archive.Executable("coppice", path), {Name: "LICENSE", Data: []byte("free"), Mode: 0o644}})
			if err != nil {
				t.Fatal(err)
			}
			if got := p.unpack(t, packed.Bytes()); !maps.Equal(got, want) {
				t.Errorf("the archive has %v, want %v", got, want)
			}
		})
	}
}

// TestSameFilesSameArchive: neither when and where the files were made nor who owns them is in the
// archive.
func TestSameFilesSameArchive(t *testing.T) {
	for name, p := range packers {
		t.Run(name, func(t *testing.T) {
			var archives [2]bytes.Buffer
			for i := range archives {
				dir := t.TempDir()
				for _, file := range []string{"b/two", "a"} {
					path := filepath.Join(dir, file)
					if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
						t.Fatal(err)
					}
					if err := os.Chtimes(path, made, made.Add(time.Duration(i)*time.Hour)); err != nil {
						t.Fatal(err)
					}
				}
				files, err := archive.Tree(dir, "tree/")
				if err != nil {
					t.Fatal(err)
				}
				if err := p.pack(&archives[i], made, files); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(archives[0].Bytes(), archives[1].Bytes()) {
				t.Error("the archives of the same files differ")
			}
			if got := p.unpack(t, archives[0].Bytes()); got["tree/a"].text != "a" || got["tree/b/two"].text != "b/two" {
				t.Errorf("the archive has %v", got)
			}
		})
	}
}

func TestCreateKeepsWhatIsThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "archive")
	if err := os.WriteFile(path, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := archive.Create(path, made, nil, archive.Zip); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v, want an error that the file exists", err)
	}
}

func fromTarGz(t *testing.T, data []byte) map[string]entry {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	entries := map[string]entry{}
	for files := tar.NewReader(plain); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg || header.Uid != 0 || header.Uname != "" {
			t.Errorf("%s is of type %c and belongs to %d %q", header.Name, header.Typeflag, header.Uid, header.Uname)
		}
		entries[header.Name] = entry{fs.FileMode(header.Mode), header.ModTime.UTC(), string(text)}
	}
}

func fromZip(t *testing.T, data []byte) map[string]entry {
	t.Helper()
	files, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	entries := map[string]entry{}
	for _, f := range files.File {
		opened, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(opened)
		if err != nil {
			t.Fatal(err)
		}
		entries[f.Name] = entry{f.Mode(), f.Modified.UTC(), string(text)}
	}
	return entries
}
