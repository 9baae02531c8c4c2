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
//	images/pulling/HASH.json   the name of an image whose pull has begun, and the images that were there before
//	images/pulled/HASH.json    an image, by its ID, and who may use it
//
// The first is written before a pull, and removed after the second is written (imageintents.go). So an image that was pulled
// never looks like one that was there before, even if the agent is killed, or if the runtime finishes a pull after its
// request was cancelled; and an image that was there before never looks like a pulled one. It is safe for concurrent use.
type imageRecords struct {
	dir string

	mu      sync.Mutex
	intents map[string]*intent // guarded by mu; the pulls that have begun, by full reference
	writes  uint64             // guarded by mu; counts records that were written
	written map[string]uint64  // guarded by mu; when a record was written, in writes, by ID
}

// openImageRecords opens the records in a directory, and creates it if necessary.
func openImageRecords(dir string) (*imageRecords, error) {
	r := &imageRecords{dir: dir, intents: map[string]*intent{}, written: map[string]uint64{}}
	for _, part := range []string{r.pulls(), r.pulled()} {
		if err := os.MkdirAll(part, 0o700); err != nil {
			return nil, fmt.Errorf("make the directory of the records of images: %w", err)
		}
	}
	return r, nil
}

func (r *imageRecords) pulls() string  { return filepath.Join(r.dir, "pulling") }
func (r *imageRecords) pulled() string { return filepath.Join(r.dir, "pulled") }

// recordPath returns the path of the record with a key, which may have any characters.
func recordPath(dir, key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(dir, hex.EncodeToString(sum[:])+".json")
}

// add records that a pull has brought the image with this ID. The caller then calls end, or leave if that fails.
func (r *imageRecords) add(image, id string, access imageAccess) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addLocked(image, id, access)
}

func (r *imageRecords) addLocked(image, id string, access imageAccess) error {
	known, err := r.readLocked(id)
	if err != nil || known == nil {
		known = &pulledImage{ID: id} // one that cannot be read allows nobody
	}
	known.add(image, access)
	r.writes++
	r.written[id] = r.writes
	return writeRecord(recordPath(r.pulled(), id), known)
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
	names := lastNames(there)
	if len(names) > 0 { // an image without a name is pending, whatever the pod calls it
		names = append(names, lastName(image))
	}
	return imageAccess{Everybody: !r.isPendingLocked(there.GetId(), names)}, nil
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
	r.mu.Lock()
	before := r.writes
	r.mu.Unlock()
	images, err := list()
	if err != nil {
		return err
	}
	there := map[string]struct{}{}
	for _, image := range images {
		there[filepath.Base(recordPath(r.pulled(), image.GetId()))] = struct{}{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	failed := []error{r.settleLocked(images, now)}
	for id, at := range r.written {
		if at > before { // it was pulled since: the list may lack it
			there[filepath.Base(recordPath(r.pulled(), id))] = struct{}{}
		} else {
			delete(r.written, id)
		}
	}
	entries, err := os.ReadDir(r.pulled())
	if err != nil {
		return errors.Join(append(failed, err)...)
	}
	for _, e := range entries {
		if _, isThere := there[e.Name()]; !isThere {
			failed = append(failed, missingIsFine(os.Remove(filepath.Join(r.pulled(), e.Name()))))
		}
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
		return err
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
