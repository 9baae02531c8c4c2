// Package report stores measured values: each value as a line of JSON, and medians with their
// ranges as tables in Markdown.
//
// A File holds the values of one day on one machine. When a section is measured again,
// its values are replaced; the others stay. Values are appended as they are measured, so
// that nothing is lost when a later section fails.
package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Value is one measured value.
type Value struct {
	Section string  `json:"section"`
	Run     int     `json:"run"`
	Figure  string  `json:"figure"`
	Side    string  `json:"side"`
	Unit    string  `json:"unit"`
	Value   float64 `json:"value"`
}

// line is a line of the file: the machine, or a value.
type line struct {
	Machine *Machine `json:"machine,omitempty"`
	*Value
}

// File holds the raw results of one day on one machine.
type File struct {
	machine Machine
	values  []Value
	name    string   // of the file in its directory; empty if the values are only kept in memory
	out     *os.File // nil: the values are only kept in memory, or are of another day
	earlier []*File  // the results of other days in the directory, the last first
}

// Memory returns a file that is not on disk.
func Memory(m Machine) *File { return &File{machine: m} }

// Open opens raw/<date>.jsonl in a directory for the values of the given sections. Existing
// values of other sections are kept.
func Open(dir string, m Machine, sections []string) (*File, error) {
	path := filepath.Join(dir, "raw", m.Date+".jsonl")
	kept, err := read(path, m)
	if err != nil {
		return nil, err
	}
	kept = slices.DeleteFunc(kept, func(v Value) bool { return slices.Contains(sections, v.Section) })
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	out, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	f := &File{machine: m, name: nameOf(path), out: out}
	if f.earlier, err = earlier(path); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	if err := f.write(line{Machine: &m}); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	if err := f.Add(kept...); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return f, nil
}

// nameOf returns the path of a file relative to the report in the directory above.
func nameOf(path string) string { return "raw/" + filepath.Base(path) }

// earlier reads the other files beside path, the newest first: they have the values of sections that were not
// measured again.
func earlier(path string) ([]*File, error) {
	paths, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.jsonl"))
	if err != nil {
		return nil, err
	}
	var files []*File
	for _, other := range paths {
		if other == path {
			continue
		}
		f, err := parse(other)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b *File) int { return strings.Compare(b.machine.Date, a.machine.Date) })
	return files, nil
}

// read returns the values of a file, or none if it does not exist. A file of another machine or
// of other versions is an error: a table must not mix them.
func read(path string, m Machine) ([]Value, error) {
	f, err := parse(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case f.machine != m && f.machine != Machine{}:
		return nil, fmt.Errorf("%s has results of another machine or of other versions (%+v): move it away, or choose another directory", path, f.machine)
	}
	return f.values, nil
}

func parse(path string) (*File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := &File{name: nameOf(path)}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("parse %s: %w", path, err)
		}
		switch {
		case l.Machine != nil:
			f.machine = *l.Machine
		case l.Value != nil:
			f.values = append(f.values, *l.Value)
		}
	}
	return f, nil
}

// Add adds values.
func (f *File) Add(values ...Value) error {
	f.values = append(f.values, values...)
	for i := range values {
		if err := f.write(line{Value: &values[i]}); err != nil {
			return err
		}
	}
	return nil
}

func (f *File) write(l line) error {
	if f.out == nil {
		return nil
	}
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = f.out.Write(append(data, '\n'))
	return err
}

// Close closes the file.
func (f *File) Close() error {
	if f.out == nil {
		return nil
	}
	return f.out.Close()
}
