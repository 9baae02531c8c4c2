package cri

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// oldestPull is how long a runtime may go on with a pull whose end the agent has not seen. Until then, the image may appear.
const oldestPull = time.Hour

// pullIntent is the content of a file of a pull that has begun.
type pullIntent struct {
	Image string `json:"image"` // its full reference
	// Untracked has the IDs of the images that were there before the pull, and that the agent has not pulled. They stay open to
	// every pod, also if the pull gives them another name.
	Untracked []string `json:"untracked,omitempty"`
}

// intent is the state of the pulls of one reference. It counts for the images that such a pull may have brought: as long as
// they have no record, no pod may use them without a pull.
type intent struct {
	name      string              // the last part of the name of the repository
	untracked map[string]struct{} // see pullIntent
	running   int                 // the number of pulls under way
	isCutOff  bool                // the agent has not seen the end of a pull: the runtime may finish it
	cutOff    time.Time           // when that was noticed last
}

func newIntent(p pullIntent) *intent {
	in := &intent{name: lastName(p.Image), untracked: map[string]struct{}{}}
	for _, id := range p.Untracked {
		in.untracked[id] = struct{}{}
	}
	return in
}

// lastName returns the last part of the name of an image, without tag and digest.
func lastName(image string) string { return path.Base(repositoryName(image)) }

// lastNames returns the last parts of the names of an image.
func lastNames(image *runtimeapi.Image) []string {
	var all []string
	for _, name := range slices.Concat(image.GetRepoTags(), image.GetRepoDigests()) {
		all = append(all, lastName(name))
	}
	return all
}

// mayBring reports whether a pull may have brought the image with this ID and these last names. The registry and the tag
// do not matter: the configuration of a runtime may add the registry to a short name, and a tag may move to another image. An
// image without a name may be one to which the runtime is about to give it.
func (in *intent) mayBring(id string, names []string) bool {
	if _, wasThere := in.untracked[id]; wasThere {
		return false
	}
	return len(names) == 0 || slices.Contains(names, in.name)
}

// isOver reports whether no pull can bring an image any more.
func (in *intent) isOver(now time.Time) bool {
	return in.running == 0 && (!in.isCutOff || now.Sub(in.cutOff) >= oldestPull)
}

// begin records that the pull of an image begins. there has the images of the runtime, as listed before. It returns the IDs
// of those that every pod may use, since the agent has not pulled them. Each pull ends with end, fail or leave.
func (r *imageRecords) begin(image string, there []*runtimeapi.Image) (untracked map[string]struct{}, err error) {
	reference := fullReference(image)
	r.mu.Lock()
	defer r.mu.Unlock()
	untracked, err = r.untrackedLocked(there)
	if err != nil {
		return nil, err
	}
	next := &intent{name: lastName(reference), untracked: untracked} // not those of an earlier pull: they may be gone
	if before := r.intents[reference]; before != nil {
		next.running, next.isCutOff, next.cutOff = before.running, before.isCutOff, before.cutOff
	}
	content := pullIntent{reference, slices.Sorted(maps.Keys(next.untracked))}
	if err := writeRecord(recordPath(r.pulls(), reference), content); err != nil {
		return nil, err
	}
	next.running++
	r.intents[reference] = next
	return untracked, nil
}

// untrackedLocked returns the IDs of the images that the agent has not pulled.
func (r *imageRecords) untrackedLocked(images []*runtimeapi.Image) (map[string]struct{}, error) {
	ids := map[string]struct{}{}
	for _, image := range images {
		isRecorded, err := r.isRecordedLocked(image.GetId())
		if err != nil {
			return nil, err
		}
		if !isRecorded && !r.isPendingLocked(image.GetId(), lastNames(image)) {
			ids[image.GetId()] = struct{}{}
		}
	}
	return ids, nil
}

// isPendingLocked reports whether a pull that has begun may have brought the image with this ID and these last names.
func (r *imageRecords) isPendingLocked(id string, names []string) bool {
	for _, in := range r.intents {
		if in.mayBring(id, names) {
			return true
		}
	}
	return false
}

// end records that a pull is over. The image that it has brought was there before, or has a record.
func (r *imageRecords) end(image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.endLocked(fullReference(image))
}

// fail records that a pull has failed. there has the images of the runtime, as listed after. The runtime may have stored the
// image nevertheless: then nobody may use it without a pull.
func (r *imageRecords) fail(image string, there []*runtimeapi.Image) error {
	reference := fullReference(image)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.closeLocked(reference, there); err != nil {
		return err
	}
	return r.endLocked(reference)
}

// leave records that the agent does not see the end of a pull: the runtime may bring the image later.
func (r *imageRecords) leave(image string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if in := r.intents[fullReference(image)]; in != nil {
		in.running--
		in.isCutOff, in.cutOff = true, now
	}
}

func (r *imageRecords) endLocked(reference string) error {
	in := r.intents[reference]
	if in == nil {
		return nil
	}
	if in.running > 1 || in.isCutOff {
		in.running--
		return nil
	}
	return r.dropLocked(reference)
}

// dropLocked removes the intent of pulls that are over.
func (r *imageRecords) dropLocked(reference string) error {
	if err := missingIsFine(os.Remove(recordPath(r.pulls(), reference))); err != nil {
		return err
	}
	delete(r.intents, reference)
	return nil
}

// closeLocked records for the images without a record that a pull may have brought that nobody may use them without a pull.
func (r *imageRecords) closeLocked(reference string, there []*runtimeapi.Image) error {
	in := r.intents[reference]
	if in == nil {
		return nil
	}
	for _, image := range there {
		if !in.mayBring(image.GetId(), lastNames(image)) {
			continue
		}
		isRecorded, err := r.isRecordedLocked(image.GetId())
		if err == nil && !isRecorded {
			err = r.addLocked(reference, image.GetId(), imageAccess{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settleLocked ends the intents of pulls that are over.
func (r *imageRecords) settleLocked(there []*runtimeapi.Image, now time.Time) error {
	var failed []error
	for reference, in := range r.intents {
		if !in.isOver(now) {
			continue
		}
		err := r.closeLocked(reference, there)
		if err == nil {
			err = r.dropLocked(reference)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// resume reads the intents of an earlier agent. The runtime may go on with its pulls.
func (r *imageRecords) resume(now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	files, err := os.ReadDir(r.pulls())
	if err != nil {
		return err
	}
	var failed []error
	for _, file := range files {
		begun, err := readIntent(filepath.Join(r.pulls(), file.Name()))
		if err != nil {
			failed = append(failed, err)
			continue
		}
		in := newIntent(begun)
		in.isCutOff, in.cutOff = true, now
		r.intents[begun.Image] = in
	}
	return errors.Join(failed...)
}

// readIntent reads an intent. It removes a file that has no whole one: it is from before the pull.
func readIntent(file string) (begun pullIntent, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return begun, err
	}
	err = json.Unmarshal(text, &begun)
	if err == nil && filepath.Base(file) != filepath.Base(recordPath("", begun.Image)) {
		err = errors.New("it is not complete")
	}
	if err != nil {
		return begun, errors.Join(fmt.Errorf("read %s: %w", file, err), os.Remove(file))
	}
	return begun, nil
}
