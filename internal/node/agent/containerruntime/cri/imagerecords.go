package cri

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// pruneEvery is the interval at which the records of images that are gone are removed.
	pruneEvery = 10 * time.Minute
	// oldestPull is the age from which a pull that another agent began cannot be under way.
	oldestPull = 24 * time.Hour
)

// imageRecords are the records of the images that the agent has pulled, in files:
//
//	images/pulling/HASH.json   the name of an image whose pull has begun
//	images/pulled/HASH.json    an image, by its ID, and who may use it
//
// The first is written before a pull, and removed after the second is written. So an image that was pulled never looks
// like one that was there before, even if the agent is killed. It is safe for concurrent use.
type imageRecords struct {
	dir string

	mu      sync.Mutex
	pulling map[string]int    // guarded by mu; the pulls under way, by full reference
	writes  uint64            // guarded by mu; counts records that were written
	written map[string]uint64 // guarded by mu; when a record was written, in writes, by ID
}

// pullIntent is the content of a file of a pull that has begun.
type pullIntent struct {
	Image string `json:"image"` // its full reference
}

// openImageRecords opens the records in a directory, and creates it if necessary.
func openImageRecords(dir string) (*imageRecords, error) {
	r := &imageRecords{dir: dir, pulling: map[string]int{}, written: map[string]uint64{}}
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

// begin records that the pull of an image begins. Each pull ends with end or succeed; if neither is called, the image
// counts as pulled by the agent, and no pod may use it without a pull.
func (r *imageRecords) begin(image string) error {
	reference := fullReference(image)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := writeRecord(recordPath(r.pulls(), reference), pullIntent{reference}); err != nil {
		return err
	}
	r.pulling[reference]++
	return nil
}

// end records that a pull has brought no image that was not there before.
func (r *imageRecords) end(image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.endLocked(fullReference(image))
}

// succeed records that a pull has brought the image with this ID.
func (r *imageRecords) succeed(image, id string, access imageAccess) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.addLocked(image, id, access); err != nil {
		return err
	}
	return r.endLocked(fullReference(image))
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

func (r *imageRecords) endLocked(reference string) error {
	if r.pulling[reference] > 1 {
		r.pulling[reference]--
		return nil
	}
	if err := missingIsFine(os.Remove(recordPath(r.pulls(), reference))); err != nil {
		return err
	}
	delete(r.pulling, reference)
	return nil
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

// accessTo returns the pods that may use an image by a name without a pull.
func (r *imageRecords) accessTo(image string, there *runtimeapi.Image) (imageAccess, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, err := r.readLocked(there.GetId())
	if err != nil {
		return imageAccess{}, err
	}
	if known != nil {
		return known.Names[repositoryName(image)], nil
	}
	begun, err := r.hasBegunLocked(append(referencesTo(there), fullReference(image)))
	return imageAccess{Everybody: err == nil && !begun}, err
}

// hasBegunLocked reports whether a pull by one of these names has begun, so that the image may be that of the pull.
func (r *imageRecords) hasBegunLocked(references []string) (bool, error) {
	for _, reference := range references {
		_, err := os.Lstat(recordPath(r.pulls(), reference))
		if !errors.Is(err, fs.ErrNotExist) {
			return true, err
		}
	}
	return false, nil
}

// untracked returns the IDs of the images that the agent has not pulled.
func (r *imageRecords) untracked(images []*runtimeapi.Image) map[string]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := map[string]struct{}{}
	for _, image := range images {
		known, err := r.readLocked(image.GetId())
		begun, failed := r.hasBegunLocked(referencesTo(image))
		if known == nil && err == nil && !begun && failed == nil {
			ids[image.GetId()] = struct{}{}
		}
	}
	return ids
}

// resume completes the records of pulls that an earlier agent has begun. If the image is there, nobody may use it
// without a pull.
func (r *imageRecords) resume(list func() ([]*runtimeapi.Image, error), now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	begun, err := os.ReadDir(r.pulls())
	if err != nil || len(begun) == 0 {
		return err
	}
	images, err := list()
	if err != nil {
		return err // the intents stay, and count
	}
	var failed []error
	for _, e := range begun {
		failed = append(failed, r.resumeLocked(filepath.Join(r.pulls(), e.Name()), images, now))
	}
	return errors.Join(failed...)
}

func (r *imageRecords) resumeLocked(path string, images []*runtimeapi.Image, now time.Time) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	var intent pullIntent
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &intent)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("read %s: %w", path, err), os.Remove(path)) // half of a file, from before the pull
	}
	isThere := false
	for _, image := range images {
		if !slices.Contains(referencesTo(image), intent.Image) {
			continue
		}
		isThere = true
		if err := r.addLocked(intent.Image, image.GetId(), imageAccess{}); err != nil {
			return err
		}
	}
	if !isThere && now.Sub(info.ModTime()) < oldestPull {
		return nil // the runtime may go on with the pull
	}
	return os.Remove(path)
}

// prune removes the records of images that are gone. list returns the images that are there.
func (r *imageRecords) prune(list func() ([]*runtimeapi.Image, error)) error {
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
	for id, at := range r.written {
		if at > before { // it was pulled since: the list may lack it
			there[filepath.Base(recordPath(r.pulled(), id))] = struct{}{}
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

// pruneImages removes the records of images that are gone.
func (r *Runtime) pruneImages(ctx context.Context) {
	err := r.records.prune(func() ([]*runtimeapi.Image, error) { return r.images.ListImages(ctx, nil) })
	if err != nil && ctx.Err() == nil {
		r.failures.Warn(ctx, "records of images not removed", "images", err)
	}
}
