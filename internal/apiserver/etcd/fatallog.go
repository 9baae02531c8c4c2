package etcd

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"go.uber.org/zap/zapcore"
)

// fatalLog is etcd's logger. It drops the logs of normal operation, because failures are returned
// as errors. But when etcd cannot write, or finds its files damaged, it ends the process from one
// of its goroutines: fatalLog writes that message, as one line.
type fatalLog struct {
	to  io.Writer // nil: none
	dir string
}

// Enabled implements zapcore.Core.
func (l fatalLog) Enabled(level zapcore.Level) bool { return level >= zapcore.PanicLevel }

// With implements zapcore.Core.
func (l fatalLog) With([]zapcore.Field) zapcore.Core { return l }

// Sync implements zapcore.Core.
func (l fatalLog) Sync() error { return nil }

// Check implements zapcore.Core.
func (l fatalLog) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if l.Enabled(entry.Level) {
		return checked.AddCore(entry, l)
	}
	return checked
}

// Write implements zapcore.Core.
func (l fatalLog) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	if l.to == nil {
		return nil
	}
	parts := []string{entry.Message}
	var cause error
	for _, field := range fields {
		switch err, isError := field.Interface.(error); {
		case isError:
			cause = err
			parts = append(parts, err.Error())
		case field.Key == "error" || field.Key == "path":
			parts = append(parts, field.String)
		}
	}
	_, err := fmt.Fprintf(l.to, "coppice: etcd on %s: %s; %s\n", l.dir, strings.ReplaceAll(strings.Join(parts, ": "), "\n", " "), advice(cause))
	return err
}

// advice returns the remedy after etcd has ended the process.
func advice(cause error) string {
	for _, full := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(cause, full) {
			return "all acknowledged writes are on disk: free disk space, and start again"
		}
	}
	return "if its files are damaged, " + restoreInstead
}

// restoreInstead is the advice for files that cannot be read.
const restoreInstead = "restore a snapshot: coppice snapshot restore FILE --data-dir NEW"
