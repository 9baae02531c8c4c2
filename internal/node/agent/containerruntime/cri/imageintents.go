package cri

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// oldestPull is how long a runtime may go on with a pull whose end the agent has not seen. Until then, the image may appear.
	oldestPull = time.Hour
	// mostCutOff is the maximum number of images of a namespace whose pulls with credentials are cut off. Its pods pull no
	// further image with credentials then: an intent that was forgotten would open a private image.
	mostCutOff = 100
)

// pullIntent is the content of a file of a pull with credentials that has begun. An anonymous pull has none: everybody may
// use the image that it brings.
type pullIntent struct {
	Image     string    `json:"image"`               // its full reference
	Namespace string    `json:"namespace,omitempty"` // of the pod
	CutOff    time.Time `json:"cutOff,omitzero"`     // see intent; zero in the file of a pull that is under way
}

// intent is the state of the pulls of one reference with credentials. It counts for the images that such a pull may have
// brought: as long as they have no record, no pod may use them without a pull.
type intent struct {
	namespace string    // of the pod that began first
	running   int       // the number of pulls under way
	cutOff    time.Time // when the agent last lost sight of a pull, with which the runtime may go on; zero: of none
}

// isOver reports whether no pull can bring an image any more.
func (in *intent) isOver(now time.Time) bool {
	return in.running == 0 && now.Sub(in.cutOff) >= oldestPull
}

// begin records that the pull of an image with credentials begins, by a pod of a namespace. there has the images of the
// runtime, as listed before. It returns the preloaded ones. Each pull ends once: with end or fail, or, if these return an
// error, with leave.
func (r *imageRecords) begin(image, namespace string, there imageList) (preloaded map[string]uint64, err error) {
	reference := fullReference(image)
	r.mu.Lock()
	defer r.mu.Unlock()
	in := r.intents[reference]
	if in == nil {
		if r.cutOffLocked(namespace) >= mostCutOff {
			return nil, fmt.Errorf("pulls of %d other images with pull secrets of namespace %q were cut off within an hour, and the container runtime may go on with them; "+
				"the node tries again: wait until they are an hour old", mostCutOff, namespace)
		}
		in = &intent{namespace: namespace}
	}
	if err := r.findPreloadedLocked(there); err != nil {
		return nil, err
	}
	in.running++
	if err := r.storeLocked(reference, in); err != nil {
		in.running--
		return nil, err
	}
	r.intents[reference] = in
	return r.preloaded, nil
}

// storeLocked writes the file of an intent.
func (r *imageRecords) storeLocked(reference string, in *intent) error {
	content := pullIntent{Image: reference, Namespace: in.namespace}
	if in.running == 0 {
		content.CutOff = in.cutOff
	}
	return writeRecord(recordPath(r.pulls(), reference), content)
}

// cutOffLocked returns the number of images of a namespace whose pulls are cut off.
func (r *imageRecords) cutOffLocked(namespace string) int {
	count := 0
	for _, in := range r.intents {
		if in.namespace == namespace && !in.cutOff.IsZero() {
			count++
		}
	}
	return count
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
	if err := r.closeLocked(r.awaitedLocked(func(other string, _ *intent) bool { return other == reference }), there); err != nil {
		return err
	}
	return r.endLocked(reference)
}

// leave records that the agent does not see the end of a pull: the runtime may bring the image later. The pull has ended also
// if leave returns an error: the file then has an earlier state, after which the next agent waits at least as long.
func (r *imageRecords) leave(image string, now time.Time) error {
	reference := fullReference(image)
	r.mu.Lock()
	defer r.mu.Unlock()
	in := r.intents[reference]
	if in == nil {
		return nil
	}
	in.running--
	in.cutOff = now
	return r.storeLocked(reference, in)
}

// endLocked ends a pull of an intent. If it returns an error, the pull still counts as under way, so that leave can end it.
func (r *imageRecords) endLocked(reference string) error {
	in := r.intents[reference]
	if in == nil {
		return nil
	}
	if in.running == 1 && in.cutOff.IsZero() {
		return r.dropLocked(reference)
	}
	in.running--
	if err := r.storeLocked(reference, in); err != nil {
		in.running++
		return err
	}
	return nil
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
// An image without a name stays as it is: somebody else may be loading it. It does not count as preloaded.
func (r *imageRecords) closeLocked(names awaited, there []*runtimeapi.Image) error {
	for _, image := range there {
		if _, isPreloaded := r.preloaded[image.GetId()]; isPreloaded || !names.mayHaveBrought(image) {
			continue
		}
		isRecorded, err := r.isRecordedLocked(image.GetId())
		if err == nil && !isRecorded {
			err = r.writeLocked(&pulledImage{ID: image.GetId()})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settleLocked ends the intents of pulls that are over.
func (r *imageRecords) settleLocked(there []*runtimeapi.Image, now time.Time) error {
	err := r.closeLocked(r.awaitedLocked(func(_ string, in *intent) bool { return in.isOver(now) }), there)
	if err != nil {
		return err
	}
	var failed []error
	for reference, in := range r.intents {
		if in.isOver(now) {
			failed = append(failed, r.dropLocked(reference))
		}
	}
	return errors.Join(failed...)
}

// resumePullsLocked reads the intents of an earlier agent. The runtime may go on with its pulls.
func (r *imageRecords) resumePullsLocked(now time.Time) error {
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
		cutOff := begun.CutOff
		if cutOff.IsZero() || cutOff.After(now) { // it was under way, or the clock was set back
			cutOff = now
		}
		r.intents[begun.Image] = &intent{namespace: begun.Namespace, cutOff: cutOff}
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
