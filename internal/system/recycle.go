package system

import (
	"context"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
	"github.com/coppice-dev/coppice/internal/apiserver/recyclebin"
)

// openBin opens the recycle bin; it returns nil if Recycle keeps no objects.
func openBin(o completedOptions, dir *dataDir, store *etcd.Store) (*recyclebin.Bin, error) {
	if o.Recycle == (recyclebin.Bounds{}) {
		return nil, nil // no bin is a valid choice
	}
	return recyclebin.Open(dir.path, store, o.Recycle, o.Log)
}

// recycle puts deleted objects into the bin until ctx ends; bin may be nil.
func recycle(ctx context.Context, bin *recyclebin.Bin) error {
	if bin == nil {
		return nil
	}
	return bin.Follow(ctx)
}

// serveBin serves the recycle bin, or an error if bin is nil.
func serveBin(api *apiserver.Server, bin *recyclebin.Bin) {
	if bin != nil {
		api.Handle(recyclebin.Path, usersOnly(bin.Handler(api.Authorizer())))
		return
	}
	api.Handle(recyclebin.Path, recyclebin.Off("this server keeps no deleted objects: start it with coppice up --recycle=SIZE,AGE"))
}
