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

// record has the runs that have passed, also of earlier campaigns: each is a line of a file. A run counts for as long as
// the compiled tests are the same to the byte. Tests outside of internal start the product as a process, so theirs count
// while the product is the same too. Its methods may be called concurrently.
type record struct {
	file *os.File // nil keeps nothing

	mu      sync.Mutex
	passed  map[string]bool // by line
	product string          // sum of the product, "" until somebody asks
}

// openRecord reads the record in a file, which it creates if it is missing. Without a path the record is empty, and keeps
// nothing.
func openRecord(path string) (*record, error) {
	r := &record{passed: map[string]bool{}}
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
		r.passed[lines.Text()] = true
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

// key names what the runs of a compiled test test.
func (r *record) key(ctx context.Context, importPath, binary string) (string, error) {
	if r.file == nil {
		return "", nil
	}
	key, err := sumOfFile(binary)
	if err != nil || strings.Contains(importPath, "/internal/") {
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

func (r *record) has(key string, run int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.passed[line(key, run)]
}

// add keeps a run that has passed.
func (r *record) add(key string, run int) error {
	if r.file == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passed[line(key, run)] = true
	_, err := fmt.Fprintln(r.file, line(key, run))
	return err
}

func line(key string, run int) string { return fmt.Sprintf("%s %d", key, run) }

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
