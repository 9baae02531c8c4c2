// Package archive packs files so that the same files make the same archive, byte for byte: with
// a given order, a single time, and no owners.
package archive

import (
	"archive/tar"
	"archive/zip"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	// The standard library's compression may change with the version of Go; this one changes with go.mod.
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
)

// File is a file to pack: the file at Path, or Data.
type File struct {
	Name string // in the archive, separated by slashes
	Path string
	Data []byte
	Mode fs.FileMode
}

// Executable returns the program at path as a file called name.
func Executable(name, path string) File { return File{Name: name, Path: path, Mode: 0o755} }

func (f File) read() ([]byte, error) {
	if f.Path == "" {
		return f.Data, nil
	}
	return os.ReadFile(f.Path)
}

// Tree returns the regular files below dir, sorted, with the prefix before their names.
func Tree(dir, prefix string) ([]File, error) {
	var files []File
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		files = append(files, File{Name: prefix + filepath.ToSlash(name), Path: path, Mode: 0o644})
		return nil
	})
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	return files, err
}

// Tar writes a tar archive.
func Tar(w io.Writer, modified time.Time, files []File) error {
	packed := tar.NewWriter(w)
	for _, f := range files {
		data, err := f.read()
		if err != nil {
			return err
		}
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.Name, Mode: int64(f.Mode.Perm()), Size: int64(len(data)),
			ModTime: modified.UTC(), Format: tar.FormatUSTAR,
		}
		if err := packed.WriteHeader(header); err != nil {
			return err
		}
		if _, err := packed.Write(data); err != nil {
			return err
		}
	}
	return packed.Close()
}

// TarGz writes a compressed tar archive.
func TarGz(w io.Writer, modified time.Time, files []File) error {
	compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(Tar(compressed, modified, files), compressed.Close())
}

// Zip writes a zip archive.
func Zip(w io.Writer, modified time.Time, files []File) error {
	packed := zip.NewWriter(w)
	packed.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(w, flate.BestCompression)
	})
	for _, f := range files {
		data, err := f.read()
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: f.Name, Method: zip.Deflate, Modified: modified.UTC()}
		header.SetMode(f.Mode)
		entry, err := packed.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := entry.Write(data); err != nil {
			return err
		}
	}
	return packed.Close()
}

// Create writes an archive to a file, which must not exist.
func Create(path string, modified time.Time, files []File, pack func(io.Writer, time.Time, []File) error) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(pack(file, modified, files), file.Close())
}
