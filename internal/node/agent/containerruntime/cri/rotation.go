package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// The kubelet's defaults for the logs of a container.
const (
	// logSize is the size from which a log file is rotated, in bytes.
	logSize = 10 << 20
	// logFiles is the number of files that are kept of a log, including the current one.
	logFiles = 5
	// rotateEvery is the interval at which the sizes of log files are checked.
	rotateEvery = 10 * time.Second
)

// rotatedAt is the format of the suffix of a rotated file.
const rotatedAt = "20060102-150405"

// keepRotating rotates large log files until ctx ends.
func (r *Runtime) keepRotating(ctx context.Context) {
	r.every(ctx, rotateEvery, func(ctx context.Context) { r.rotate(ctx, logSize) })
}

// rotate rotates the logs of running containers that have at least this size.
func (r *Runtime) rotate(ctx context.Context, size int64) {
	for _, uid := range r.cache.known() {
		for _, i := range r.Observe(uid).Instances {
			if !i.Alive() || ctx.Err() != nil {
				continue
			}
			if err := r.rotateLog(ctx, uid, i, size); err != nil {
				r.failures.Warn(ctx, "log not rotated", string(uid)+"/"+i.Container, err, "uid", uid, "container", i.Container)
			}
		}
	}
}

// rotateLog renames the file of a log, and makes the runtime write to a new one. Followers of the
// log continue with the new file.
func (r *Runtime) rotateLog(ctx context.Context, uid types.UID, i lifecycle.Instance, size int64) error {
	path := r.store.log(uid, i.Container, i.Attempt)
	info, err := os.Stat(path)
	if err != nil || info.Size() < size {
		return missingIsFine(err)
	}
	if err := removeOldest(path, logFiles-2); err != nil { // the renamed file and the new one follow
		return err
	}
	before := path + "." + r.clock.Now().UTC().Format(rotatedAt)
	if err := os.Rename(path, before); err != nil {
		return err
	}
	if err := r.containers.ReopenContainerLog(ctx, bare(i.ID)); err != nil {
		return errors.Join(fmt.Errorf("open another file: %w", err), os.Rename(before, path))
	}
	return nil
}

// rotated returns the rotated files of a log, oldest first.
func rotated(path string) ([]string, error) {
	files, err := filepath.Glob(path + ".*")
	slices.Sort(files)
	return files, err
}

// removeOldest removes all rotated files of a log except the newest ones.
func removeOldest(path string, keep int) error {
	files, err := rotated(path)
	for _, file := range files[:max(len(files)-keep, 0)] {
		err = errors.Join(err, missingIsFine(os.Remove(file)))
	}
	return err
}
