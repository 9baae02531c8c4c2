package system

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
	"github.com/coppice-dev/coppice/internal/apiserver/recyclebin"
)

// resources are what a control plane has open while it runs.
type resources struct {
	dir      *workDir
	machine  *machine // nil without nodes
	listener net.Listener
	store    *etcd.Store
	audit    io.WriteCloser  // nil without audit log
	bin      *recyclebin.Bin // nil unless Recycle

	// closers close the resources, in the order in which they were opened.
	closers []func(context.Context)
}

// open opens the resources. The caller closes them, even after an error.
func open(ctx context.Context, o completedOptions, began time.Time) (*resources, error) {
	r := &resources{}
	var err error
	if r.dir, err = openDir(o.Options); err != nil {
		return r, err
	}
	r.onClose(func(context.Context) { r.dir.close() })
	if r.machine, err = openMachine(ctx, o, r.dir); err != nil {
		return r, err
	}
	if r.machine != nil && o.Ephemeral {
		r.onClose(func(ctx context.Context) { r.machine.clear(ctx, o.Log) })
	}
	if r.listener, err = listen(ctx, o); err != nil {
		return r, err
	}
	r.onClose(func(context.Context) { _ = r.listener.Close() }) // a server that has run has closed it already
	if err := r.dir.sign(holder{PID: os.Getpid(), Server: o.serverURL(r.listener.Addr()), Started: began}); err != nil {
		return r, fmt.Errorf("write to the data directory: %w", err)
	}
	if r.store, err = openStore(ctx, o, r.dir); err != nil {
		return r, err
	}
	r.onClose(func(ctx context.Context) {
		if err := r.store.Close(); err != nil {
			o.Log.ErrorContext(ctx, "close the store", "error", err)
		}
	})
	if r.audit, err = openAudit(o.Options, r.dir.dataDir); err != nil {
		return r, err
	}
	if r.audit != nil {
		r.onClose(func(context.Context) { _ = r.audit.Close() })
	}
	if r.bin, err = openBin(o, r.dir.dataDir, r.store); err != nil {
		return r, err
	}
	if r.bin != nil {
		r.onClose(func(ctx context.Context) {
			if err := r.bin.Close(); err != nil {
				o.Log.ErrorContext(ctx, "close the recycle bin", "error", err)
			}
		})
	}
	return r, nil
}

func (r *resources) onClose(closer func(context.Context)) { r.closers = append(r.closers, closer) }

// close closes the resources in reverse order.
func (r *resources) close(ctx context.Context) {
	for _, closer := range slices.Backward(r.closers) {
		closer(ctx)
	}
}

// workDir is the data directory of this run.
type workDir struct {
	*dataDir
	remove bool
}

func (d *workDir) close() {
	d.unlock()
	if d.remove {
		_ = os.RemoveAll(d.path)
	}
}

// openDir locks the data directory, or creates a temporary one.
func openDir(o Options) (*workDir, error) {
	path := o.DataDir
	if o.Ephemeral {
		temporary, err := makeTempDir(o.TempDir)
		if err != nil {
			return nil, fmt.Errorf("make a directory for this run: %w", err)
		}
		path = temporary
	}
	dir, err := lockDir(path)
	if err != nil {
		return nil, err
	}
	return &workDir{dataDir: dir, remove: o.Ephemeral}, nil
}

// makeTempDir creates a directory in within, which it creates if necessary; by default in the system's
// directory of temporary files.
func makeTempDir(within string) (string, error) {
	if within != "" {
		if err := os.MkdirAll(within, 0o700); err != nil {
			return "", err
		}
	}
	return os.MkdirTemp(within, "coppice-*")
}
