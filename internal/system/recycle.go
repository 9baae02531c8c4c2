package system

import (
	"context"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/recyclebin"
	"github.com/coppice-dev/coppice/internal/apiserver/storage"
)

// openBin opens the recycle bin; it returns nil if Recycle keeps no objects.
func openBin(o Options, dir *dataDir, store *storage.Store) (*recyclebin.Bin, error) {
	if o.Recycle == (recyclebin.Bounds{}) {
		return nil, nil // no bin is a valid choice
	}
	return recyclebin.Open(dir.path, store, o.Recycle, o.Log)
}

func (o *Options) closeBin(ctx context.Context) {
	if o.bin == nil {
		return
	}
	if err := o.bin.Close(); err != nil {
		o.Log.ErrorContext(ctx, "close the recycle bin", "error", err)
	}
}

// recycle puts deleted objects into the recycle bin until ctx ends.
func (o *Options) recycle(ctx context.Context) error {
	if o.bin == nil {
		return nil
	}
	return o.bin.Follow(ctx)
}

// serveBin serves the recycle bin, or an error without one.
func (o *Options) serveBin(api *apiserver.Server) {
	if o.bin != nil {
		api.Handle(recyclebin.Path, usersOnly(o.bin.Handler(api.Authorizer())))
		return
	}
	api.Handle(recyclebin.Path, recyclebin.Off("this server keeps no deleted objects: start it with coppice up --recycle=SIZE,AGE"))
}
