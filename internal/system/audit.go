package system

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"gopkg.in/natefinch/lumberjack.v2"
)

// The audit log is rotated: besides the current file, auditFiles files of auditMegabytes each are kept,
// compressed, for at most auditDays.
const (
	auditFile      = "audit.log"
	auditMegabytes = 100
	auditFiles     = 5
	auditDays      = 30
)

// openAudit opens the audit log; it returns nil if no audit log is written.
func openAudit(path string, dir *dataDir) (io.WriteCloser, error) {
	switch path {
	case NoAuditLog:
		return nil, nil // no audit log is a valid choice
	case "-":
		return nopCloser{os.Stdout}, nil
	case "":
		path = dir.join(auditFile)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	// Only administrators may read the log, even if the file existed before.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w; choose another with --audit-log-path", err)
	}
	if err := file.Chmod(0o600); err != nil {
		file.Close()
		return nil, fmt.Errorf("audit log: %w", err)
	}
	if err := file.Close(); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	return &auditLog{log: &lumberjack.Logger{Filename: path, MaxSize: auditMegabytes, MaxBackups: auditFiles, MaxAge: auditDays, Compress: true}}, nil
}

// auditLog is a rotated file that stays closed: lumberjack would recreate it, and its directory, for a request that
// ends after the server has stopped.
type auditLog struct {
	mu  sync.Mutex
	log *lumberjack.Logger // guarded by mu; nil once it is closed
}

// Write implements io.Writer.
func (a *auditLog) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.log == nil {
		return 0, fmt.Errorf("audit log: %w", os.ErrClosed)
	}
	return a.log.Write(p)
}

// Close implements io.Closer.
func (a *auditLog) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.log == nil {
		return nil
	}
	log := a.log
	a.log = nil
	return log.Close()
}

type nopCloser struct{ io.Writer }

// Close implements io.Closer.
func (nopCloser) Close() error { return nil }
