package cri

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// findPreloaded notes the images that the agent has not pulled. there has the images of the runtime, as listed before an
// anonymous pull.
func (r *imageRecords) findPreloaded(there imageList) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.findPreloadedLocked(there)
}

// findPreloadedLocked notes the images that the agent has not pulled, and forgets those that are gone: a pull with credentials
// may bring them again. It is called before each pull, so that no later pull closes them.
func (r *imageRecords) findPreloadedLocked(there imageList) error {
	found := map[string]uint64{}
	for id, at := range r.preloaded {
		if at > there.time { // the list may lack it
			found[id] = at
		}
	}
	names := r.awaitedLocked(anyIntent)
	for _, image := range there.images {
		id := image.GetId()
		isRecorded, err := r.isRecordedLocked(id)
		if err != nil {
			return err
		}
		at, isKnown := r.preloaded[id]
		switch {
		case isRecorded:
			delete(found, id)
		case isKnown:
			found[id] = at
		case r.isNewLocked(image, there, names):
			found[id] = r.changes + 1
		}
	}
	if maps.Equal(found, r.preloaded) {
		return nil
	}
	if err := writeRecord(r.preloadedPath(), slices.Sorted(maps.Keys(found))); err != nil {
		return err
	}
	r.changes++
	r.preloaded = found
	return nil
}

// isNewLocked reports whether an image without a record is a preloaded one. An image without a name is not: a pull that has
// failed may have left it. Neither is one in a list from before the removal of a record, which may be that of the image.
func (r *imageRecords) isNewLocked(image *runtimeapi.Image, there imageList, names awaited) bool {
	return !isUnnamed(image) && r.pruned <= there.time && !names.mayHaveBrought(image)
}

// resume reads the preloaded images and the intents of an earlier agent.
func (r *imageRecords) resume(now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.resumePreloadedLocked(), r.resumePullsLocked(now))
}

func (r *imageRecords) resumePreloadedLocked() error {
	text, err := os.ReadFile(r.preloadedPath())
	if err != nil {
		return missingIsFine(err)
	}
	var ids []string
	if err := json.Unmarshal(text, &ids); err != nil {
		return fmt.Errorf("read %s: %w", r.preloadedPath(), err)
	}
	found := map[string]uint64{}
	for _, id := range ids {
		found[id] = 0
	}
	r.preloaded = found
	return nil
}
