// Package transcript keeps the output of a process or a logger, so that a test can read it while
// more is being written.
package transcript

import (
	"bytes"
	"sync"
)

// Transcript is an [io.Writer] that keeps the written bytes. The zero value is empty and ready for
// use. It is safe for concurrent use.
type Transcript struct {
	// Limit, if not 0, is the number of last bytes that are kept. It is set before the first write.
	Limit int

	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// Write implements [io.Writer]. It never fails.
func (t *Transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.Write(p)
	if extra := t.text.Len() - t.Limit; t.Limit > 0 && extra > 0 {
		t.text.Next(extra)
	}
	return len(p), nil
}

// String returns the kept bytes.
func (t *Transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
