// Package report stores measured values: each value as a line of JSON, and medians with their
// ranges as tables in Markdown.
//
// Each section has one file of raw values, with the machine and the versions that they were measured on in its first
// line. When a section is measured again, its file is replaced; the others stay. Values are appended as they
// are measured, so that nothing is lost when a later section fails.
package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// line is a line of a file: the machine, or a value.
type line struct {
	Machine *Machine `json:"machine,omitempty"`
	*Value
}

// measured has the latest values of a section.
type measured struct {
	machine Machine
	values  []Value
	out     *os.File // nil if the values are only kept in memory, or were measured by an earlier command
}

// Results are the values of all sections. They are not safe for concurrent use.
type Results struct {
	machine  Machine
	dir      string // empty if the values are only kept in memory
	sections map[string]*measured
}

// Memory returns results that are not on disk.
func Memory(m Machine) *Results { return &Results{machine: m, sections: map[string]*measured{}} }

// Open reads the raw values in the directory raw of dir. Values that are added replace the file of
// their section. A quick run is an error: its figures mean nothing.
func Open(dir string, m Machine) (*Results, error) {
	if m.Quick {
		return nil, fmt.Errorf("the figures of a quick run mean nothing: they are not written to %s", dir)
	}
	r := Memory(m)
	r.dir = dir
	if err := os.MkdirAll(filepath.Join(dir, "raw"), 0o755); err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(dir, "raw", "*"+extension))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if r.sections[strings.TrimSuffix(filepath.Base(path), extension)], err = parse(path); err != nil {
			return nil, err
		}
	}
	return r, nil
}

const extension = ".jsonl"

// fileOf returns the path of the raw values of a section relative to the report.
func fileOf(section string) string { return "raw/" + section + extension }

func parse(path string) (*measured, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &measured{}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("parse %s: %w", path, err)
		}
		switch {
		case l.Machine != nil:
			s.machine = *l.Machine
		case l.Value != nil:
			s.values = append(s.values, *l.Value)
		}
	}
	return s, nil
}

// Add adds values. The first value of a section replaces its earlier values.
func (r *Results) Add(values ...Value) error {
	for _, v := range values {
		s, err := r.section(v.Section)
		if err != nil {
			return err
		}
		s.values = append(s.values, v)
		if err := s.write(line{Value: &v}); err != nil {
			return err
		}
	}
	return nil
}

// section returns the current values of a section.
func (r *Results) section(name string) (*measured, error) {
	s := r.sections[name]
	if s != nil && (s.out != nil || r.dir == "") {
		return s, nil
	}
	s = &measured{machine: r.machine}
	if r.dir != "" {
		var err error
		if s.out, err = os.Create(filepath.Join(r.dir, fileOf(name))); err != nil {
			return nil, err
		}
	}
	r.sections[name] = s
	return s, s.write(line{Machine: &s.machine})
}

func (s *measured) write(l line) error {
	if s.out == nil {
		return nil
	}
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = s.out.Write(append(data, '\n'))
	return err
}

// Close closes the files.
func (r *Results) Close() error {
	var failures []error
	for _, s := range r.sections {
		if s.out != nil {
			failures = append(failures, s.out.Close())
		}
	}
	return errors.Join(failures...)
}
