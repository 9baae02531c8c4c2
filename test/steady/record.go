package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// record has how runs have ended, also those of earlier campaigns: each is a line of a file. A run counts for as long as
// the compiled tests are the same to the byte, and so does its failure: nobody repeats a campaign until it passes. Tests
// outside of internal start the product as a process, so theirs count while the product is the same, too. Its methods may
// be called concurrently.
type record struct {
	file *os.File // nil keeps nothing

	mu      sync.Mutex
	lines   map[string]bool
	product string // sum of the product, "" until somebody asks
}

// outcome is how a run has ended.
type outcome string

const (
	unknown outcome = ""
	passes  outcome = "passed"
	fails   outcome = "failed"
)

// openRecord reads the record in a file, which it creates if it is missing. Without a path the record is empty, and keeps
// nothing.
func openRecord(path string) (*record, error) {
	r := &record{lines: map[string]bool{}}
	if path == "" {
		return r, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Clean(path), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		r.lines[lines.Text()] = true
	}
	if err := lines.Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", path, err), file.Close())
	}
	r.file = file
	return r, nil
}

func (r *record) close() {
	if r.file != nil {
		_ = r.file.Close()
	}
}

// key names what the runs of a compiled test test. only is the expression that selects some of its tests.
func (r *record) key(ctx context.Context, importPath, binary, only string) (string, error) {
	if r.file == nil {
		return "", nil
	}
	key, err := sumOfFile(binary)
	if only != "" {
		key += "+" + only
	}
	if err != nil || !startsProduct(importPath) {
		return key, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.product == "" {
		if r.product, err = sumOfProduct(ctx); err != nil {
			return "", err
		}
	}
	return key + "+" + r.product, nil
}

// startsProduct reports whether tests of a package start the product as a process: those below internal do not.
func startsProduct(importPath string) bool {
	return strings.HasPrefix(importPath+"/", "github.com/coppice-dev/coppice/") && !strings.Contains(importPath, "/internal/")
}

// of returns how a run has ended.
func (r *record) of(key string, run int) outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range []outcome{passes, fails} {
		if r.lines[line(key, run, o)] {
			return o
		}
	}
	return unknown
}

// add keeps how a run has ended.
func (r *record) add(key string, run int, o outcome) error {
	if r.file == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines[line(key, run, o)] = true
	_, err := fmt.Fprintln(r.file, line(key, run, o))
	return err
}

func line(key string, run int, o outcome) string { return fmt.Sprintf("%s %d %s", key, run, o) }

// sumOfProduct builds the command, without the name of the commit, and returns its sum.
func sumOfProduct(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "coppice-steady-product-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, "coppice")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", binary, "github.com/coppice-dev/coppice/cmd/coppice")
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the product: %w\n%s", err, text)
	}
	return sumOfFile(binary)
}

// sumOfFile returns the first half of the SHA-256 sum of a file, in hexadecimal digits.
func sumOfFile(path string) (string, error) {
	file, err := os.Open(filepath.Clean(path))
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:16]), nil
}
