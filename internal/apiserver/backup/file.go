// Package backup saves objects before their deletion: it reads the objects of a preview (read.go), and writes them into
// a file that undo reads (file.go).
//
// A file begins with one line of JSON, the Header. The rest is compressed JSON, one object per line, after a line about the
// objects that the backup lacks, if there are any. It is encrypted, because the objects may be secrets.
package backup

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/apiserver/keyfile"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// The header's constants.
const (
	apiVersion = "coppice.dev/v1"
	fileKind   = "DeletionBackup"
)

// Header is the first line of a file. It is not encrypted, but Open detects changes to it.
type Header struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Created    time.Time `json:"created"`
	Objects    int       `json:"objects"`
	// Key is the ID of the key.
	Key string `json:"key"`
}

// Content is the encrypted part of a file.
type Content struct {
	Kept []undo.Kept
	// Lacks has a line for each object that the backup lacks, and for each resource of which it may lack objects.
	Lacks []string
}

const (
	// mostLacks bounds the lines of Content.Lacks in a file.
	mostLacks = 200
	// longestLack bounds the length of such a line, in bytes: it may quote the answer of a webhook.
	longestLack = 4 << 10
)

// record is an object in the file, or what the backup lacks.
type record struct {
	Lacks      []string                    `json:"lacks,omitempty"`
	Resource   schema.GroupVersionResource `json:"resource"`
	Requested  bool                        `json:"requested,omitempty"`
	Stays      bool                        `json:"stays,omitempty"`
	Earlier    bool                        `json:"earlier,omitempty"`
	Finalizers []string                    `json:"finalizers,omitempty"`
	Object     *unstructured.Unstructured  `json:"object"`
}

// Seal returns the text of a file.
func Seal(c Content, key *keyfile.Key, now time.Time) ([]byte, error) {
	header, err := json.Marshal(Header{apiVersion, fileKind, now.UTC(), len(c.Kept), key.ID()})
	if err != nil {
		return nil, fmt.Errorf("encode the header: %w", err)
	}
	var text bytes.Buffer
	compressed := gzip.NewWriter(&text)
	encoder := json.NewEncoder(compressed)
	if len(c.Lacks) > 0 {
		if err := encoder.Encode(record{Lacks: boundedLacks(c.Lacks)}); err != nil {
			return nil, fmt.Errorf("encode what the backup lacks: %w", err)
		}
	}
	for n := range c.Kept {
		k := &c.Kept[n]
		if err := encoder.Encode(record{Resource: k.Resource, Requested: k.Requested, Stays: k.Stays, Earlier: k.Earlier, Finalizers: k.Finalizers, Object: k.Object}); err != nil {
			return nil, fmt.Errorf("encode %s: %w", k.Place(), err)
		}
	}
	if err := compressed.Close(); err != nil {
		return nil, fmt.Errorf("compress the objects: %w", err)
	}
	return append(append(header, '\n'), key.Seal(text.Bytes(), header)...), nil
}

func boundedLacks(lines []string) []string {
	bounded := slices.Clone(lines[:min(len(lines), mostLacks)])
	for i, line := range bounded {
		bounded[i] = ownership.Excerpt(line, longestLack)
	}
	if more := len(lines) - mostLacks; more > 0 {
		bounded = append(bounded, fmt.Sprintf("and %d more", more))
	}
	return bounded
}

// ErrNoBackup is the error for a file that has not the form of a backup.
var ErrNoBackup = errors.New(`it is no backup as "coppice preview delete --backup" writes it`)

// ReadHeader returns the header of a file, which needs no key.
func ReadHeader(content []byte) (Header, error) {
	header, _, _, err := split(content)
	return header, err
}

// Open returns the content and the header of a file.
func Open(content []byte, key *keyfile.Key) (Content, Header, error) {
	header, line, rest, err := split(content)
	if err != nil {
		return Content{}, header, err
	}
	if header.Key != key.ID() {
		return Content{}, header, fmt.Errorf("it was encrypted with the key %s, and this is the key %s: name the right one with --backup-key", header.Key, key.ID())
	}
	text, err := key.Open(rest, line)
	if err != nil {
		return Content{}, header, err
	}
	plain, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return Content{}, header, fmt.Errorf("expand the objects: %w", err)
	}
	c := Content{Kept: make([]undo.Kept, 0, header.Objects)}
	for decoder := json.NewDecoder(plain); ; {
		var r record
		if err := decoder.Decode(&r); errors.Is(err, io.EOF) {
			return c, header, nil
		} else if err != nil {
			return Content{}, header, fmt.Errorf("decode an object: %w", err)
		}
		if c.Lacks = append(c.Lacks, r.Lacks...); r.Object == nil {
			continue
		}
		c.Kept = append(c.Kept, undo.Kept{
			Resource: r.Resource, Object: r.Object, Requested: r.Requested, Stays: r.Stays, Earlier: r.Earlier, Finalizers: r.Finalizers,
		})
	}
}

// split returns the header of a file, its line, and the rest.
func split(content []byte) (header Header, line, rest []byte, err error) {
	line, rest, found := bytes.Cut(content, []byte("\n"))
	if !found || json.Unmarshal(line, &header) != nil || header.Kind != fileKind {
		return header, nil, nil, ErrNoBackup
	}
	if header.APIVersion != apiVersion {
		return header, nil, nil, fmt.Errorf("it is of version %s, and this is a program for %s", header.APIVersion, apiVersion)
	}
	return header, line, rest, nil
}

// Write writes a file that only its owner may read, completely or not at all. It never overwrites a file.
func Write(path string, content []byte) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s is there already: name another file, or remove it", path)
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	defer func() { _ = os.Remove(temporary.Name()) }()
	_, err = temporary.Write(content)
	if err := errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	// Unlike a rename, a link fails if another process has created the file meanwhile.
	if err := os.Link(temporary.Name(), path); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	return nil
}
