package cri

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pruneEvery is the interval at which the records of images that are gone are removed, and those of pulls that are over.
const pruneEvery = 10 * time.Minute

// imageRecords are the records of the images that the agent has pulled, in files:
//
//	images/preloaded.json      the IDs of images that the agent has not pulled
//	images/pulling/HASH.json   the name of an image whose pull with credentials has begun
//	images/pulled/HASH.json    an image, by its ID, and who may use it
//
// The first two are written before such a pull. The second is removed after the third is written (imageintents.go). So an
// image that was pulled with credentials never looks like one that was there before, even if the agent is killed, or if the
// runtime finishes a pull after its request was cancelled; and an image that was there before never looks like a pulled one.
// It is safe for concurrent use.
type imageRecords struct {
	dir           string
	resolvesNames bool // the runtime resolves names without a registry by its configuration

	mu        sync.Mutex
	intents   map[string]*intent // guarded by mu; the pulls with credentials that have begun, by full reference
	preloaded map[string]uint64  // guarded by mu; the time at which it was found, in changes, by ID; replaced, never changed
	changes   uint64             // guarded by mu; counts changes of the records: the time
	written   map[string]uint64  // guarded by mu; the time at which a record was written, by ID
	pruned    uint64             // guarded by mu; the time at which a record was last removed
}

// imageList has the images of the runtime.
type imageList struct {
	images []*runtimeapi.Image
	time   uint64 // before they were listed, in changes of the records
}

// list returns the images of the runtime.
func (r *imageRecords) list(from func() ([]*runtimeapi.Image, error)) (imageList, error) {
	r.mu.Lock()
	before := r.changes
	r.mu.Unlock()
	images, err := from()
	return imageList{images, before}, err
}

// openImageRecords opens the records in a directory, and creates it if necessary.
func openImageRecords(dir string) (*imageRecords, error) {
	r := &imageRecords{dir: dir, intents: map[string]*intent{}, preloaded: map[string]uint64{}, written: map[string]uint64{}}
	for _, part := range []string{r.pulls(), r.pulled()} {
		if err := os.MkdirAll(part, 0o700); err != nil {
			return nil, fmt.Errorf("make the directory of the records of images: %w", err)
		}
	}
	return r, nil
}

func (r *imageRecords) pulls() string         { return filepath.Join(r.dir, "pulling") }
func (r *imageRecords) pulled() string        { return filepath.Join(r.dir, "pulled") }
func (r *imageRecords) preloadedPath() string { return filepath.Join(r.dir, "preloaded.json") }

// recordPath returns the path of the record with a key, which may have any characters.
func recordPath(dir, key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(dir, hex.EncodeToString(sum[:])+".json")
}

// add records that a pull has brought the image with this ID, unless it was preloaded. preloaded has the images that were so
// when a pull with credentials began; inUse is that of pulledImage.add. After such a pull, the caller then calls end, or leave
// if add fails.
func (r *imageRecords) add(by namedPull, id string, preloaded map[string]uint64, inUse usedNames) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if by.access.Everybody {
		preloaded = r.preloaded // one that is open stays so, also if it was found since
	}
	known, err := r.readLocked(id)
	if _, isPreloaded := preloaded[id]; isPreloaded && err == nil && known == nil {
		return nil // every pod may use it, by every name
	}
	if known == nil {
		known = &pulledImage{} // one that cannot be read allows nobody
	}
	known.ID = id
	known.add(by, inUse)
	return r.writeLocked(known)
}

func (r *imageRecords) writeLocked(p *pulledImage) error {
	r.changes++
	r.written[p.ID] = r.changes
	return writeRecord(recordPath(r.pulled(), p.ID), p)
}

// readLocked returns the record of an image, or nil if the agent has not pulled it.
func (r *imageRecords) readLocked(id string) (*pulledImage, error) {
	text, err := os.ReadFile(recordPath(r.pulled(), id))
	if err != nil {
		return nil, missingIsFine(err)
	}
	p := &pulledImage{}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("the record of image %s: %w", id, err)
	}
	return p, nil
}

// isRecordedLocked reports whether the agent has pulled an image. It does not read the record, which may be large.
func (r *imageRecords) isRecordedLocked(id string) (bool, error) {
	_, err := os.Lstat(recordPath(r.pulled(), id))
	return err == nil, missingIsFine(err)
}

// accessTo returns the pods that may use an image by a name without a pull.
func (r *imageRecords) accessTo(image string, there *runtimeapi.Image) (imageAccess, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, err := r.readLocked(there.GetId())
	if err != nil {
		return imageAccess{}, err
	}
	if known != nil {
		return known.Names[repositoryName(image)].imageAccess, nil
	}
	if _, isPreloaded := r.preloaded[there.GetId()]; isPreloaded {
		return imageAccess{Everybody: true}, nil
	}
	names := r.awaitedLocked(anyIntent)
	return imageAccess{Everybody: !names.mayBring(there) && !names.has(fullReference(image))}, nil
}

// use records that a pod uses an image by a name, which is kept longer then.
func (r *imageRecords) use(image, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, err := r.readLocked(id)
	if err != nil || known == nil || !known.use(image) {
		return err
	}
	return writeRecord(recordPath(r.pulled(), id), known)
}

// prune removes the records of images that are gone, and of pulls that are over. list returns the images that are there; now
// is the time before.
func (r *imageRecords) prune(list func() ([]*runtimeapi.Image, error), now time.Time) error {
	there, err := r.list(list)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.settleLocked(there.images, now), r.findPreloadedLocked(there), r.pruneLocked(there))
}

// pruneLocked removes the records of images that are gone.
func (r *imageRecords) pruneLocked(there imageList) error {
	kept := map[string]struct{}{}
	for _, image := range there.images {
		kept[filepath.Base(recordPath(r.pulled(), image.GetId()))] = struct{}{}
	}
	for id, at := range r.written {
		if at > there.time { // it was pulled since: the list may lack it
			kept[filepath.Base(recordPath(r.pulled(), id))] = struct{}{}
		} else {
			delete(r.written, id)
		}
	}
	entries, err := os.ReadDir(r.pulled())
	if err != nil {
		return err
	}
	var failed []error
	for _, e := range entries {
		if _, isKept := kept[e.Name()]; isKept {
			continue
		}
		r.changes++
		r.pruned = r.changes
		failed = append(failed, missingIsFine(os.Remove(filepath.Join(r.pulled(), e.Name()))))
	}
	return errors.Join(failed...)
}

// writeRecord writes a value as JSON, atomically. It is on the disk when writeRecord returns: an image must not outlive
// its record when the machine fails.
func writeRecord(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	temporary := path + ".new"
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	if err := os.Rename(temporary, path); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// pruneImages removes the records of images that are gone, and of pulls that are over.
func (r *Runtime) pruneImages(ctx context.Context) {
	err := r.records.prune(func() ([]*runtimeapi.Image, error) { return r.images.ListImages(ctx, nil) }, r.clock.Now())
	if err != nil && ctx.Err() == nil {
		r.failures.Warn(ctx, "records of images not removed", "images", err)
	}
}
