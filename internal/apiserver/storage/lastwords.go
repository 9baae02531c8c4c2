package storage

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"go.uber.org/zap/zapcore"
)

// lastWords is where etcd logs to. What it has to say in normal operation, and at a
// normal stop, would drown what the user should read, and failures come back as errors.
// But when it cannot write, or finds its files damaged, it ends the process, on a
// goroutine of its own: then its last message is the one line that says why.
type lastWords struct {
	to  io.Writer // nil: nowhere
	dir string
}

// Enabled implements zapcore.Core.
func (w lastWords) Enabled(level zapcore.Level) bool { return level >= zapcore.PanicLevel }

// With implements zapcore.Core.
func (w lastWords) With([]zapcore.Field) zapcore.Core { return w }

// Sync implements zapcore.Core.
func (w lastWords) Sync() error { return nil }

// Check implements zapcore.Core.
func (w lastWords) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if w.Enabled(entry.Level) {
		return checked.AddCore(entry, w)
	}
	return checked
}

// Write implements zapcore.Core.
func (w lastWords) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	if w.to == nil {
		return nil
	}
	said := []string{entry.Message}
	var cause error
	for _, field := range fields {
		switch err, isError := field.Interface.(error); {
		case isError:
			cause = err
			said = append(said, err.Error())
		case field.Key == "error" || field.Key == "path":
			said = append(said, field.String)
		}
	}
	_, err := fmt.Fprintf(w.to, "coppice: etcd on %s: %s; %s\n", w.dir, strings.ReplaceAll(strings.Join(said, ": "), "\n", " "), advice(cause))
	return err
}

// advice is what to do about the end of etcd.
func advice(cause error) string {
	for _, full := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(cause, full) {
			return "what was acknowledged is on disk: make room there, and start again"
		}
	}
	return "if its files are damaged, " + restoreInstead
}

// restoreInstead is what to do about files that cannot be read.
const restoreInstead = "restore a snapshot: coppice snapshot restore FILE --data-dir NEW"
