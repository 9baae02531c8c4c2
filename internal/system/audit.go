package system

import (
	"errors"
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
func openAudit(o Options, dir *dataDir) (io.WriteCloser, error) {
	path, find := o.AuditPath, lastingFileOf
	if o.Server.TrustAuditDir {
		find = fileIn
	}
	switch path {
	case NoAuditLog:
		return nil, nil // no audit log is a valid choice
	case "-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1": // pipes and terminals, too: they have no name, and are not rotated
		return nopCloser{os.Stdout}, nil
	case "/dev/stderr", "/dev/fd/2", "/proc/self/fd/2":
		return nopCloser{os.Stderr}, nil
	case "":
		path, find = dir.join(auditFile), fileIn
	}
	file, path, err := openLog(path, find)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w; choose another with --audit-log-path", err)
	}
	// Only administrators may read the log, even if the file existed before.
	if err := errors.Join(file.Chmod(0o600), file.Close()); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	return &auditLog{log: &lumberjack.Logger{Filename: path, MaxSize: auditMegabytes, MaxBackups: auditFiles, MaxAge: auditDays, Compress: true}}, nil
}

// openLog opens a file for appending, and creates it and its directory if necessary; find finds its place for root. The rotation
// uses names: it gets the path at which the file is now, without links that lead elsewhere later.
func openLog(path string, find func(path string) (place, error)) (*os.File, string, error) {
	if os.Geteuid() != 0 {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, "", err
		}
		file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|noWait, 0o600)
		return file, path, err
	}
	path, err := absolute(path)
	if err != nil {
		return nil, "", err
	}
	at, err := find(path)
	if err != nil {
		return nil, "", err
	}
	defer at.close()
	file, err := at.openToAppend()
	return file, at.path(), err
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
