package recreate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// mostJournal bounds the file of a journal, in bytes: about 170 000 objects. Of a longer one the older half is dropped.
const mostJournal = 16 << 20

// Journal remembers which objects were made again, and from which. It is the only evidence: an annotation that says so may
// be written by everybody who takes the name of an object that was deleted. It is safe for concurrent use. A nil Journal
// is empty, and remembers nothing.
type Journal struct {
	path string

	mu   sync.Mutex
	from map[types.UID]types.UID // guarded by mu; by the new UIDs
	file *os.File                // guarded by mu; nil until something is added
}

// line is one object in the file.
type line struct {
	UID  types.UID `json:"uid"`
	From types.UID `json:"from"`
}

// OpenJournal reads the journal in a file, which need not be there. A line that was not written to its end is skipped.
func OpenJournal(path string) (*Journal, error) {
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read which objects were made again: %w", err)
	}
	j := &Journal{path: path, from: map[types.UID]types.UID{}}
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		var l line
		if json.Unmarshal(lines.Bytes(), &l) == nil && l.UID != "" {
			j.from[l.UID] = l.From
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read which objects were made again from %s: %w; remove the file to begin anew", path, err)
	}
	return j, nil
}

// From returns the UID of the object from which another was made again; empty if that is not known.
func (j *Journal) From(uid types.UID) types.UID {
	if j == nil {
		return ""
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.from[uid]
}

// Open makes the file if it is not there, so that objects can be added.
func (j *Journal) Open() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(j.path), 0o700); err != nil {
		return fmt.Errorf("make the directory of the journal: %w", err)
	}
	if err := shorten(j.path); err != nil {
		return err
	}
	file, err := os.OpenFile(j.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the journal: %w", err)
	}
	if _, err := file.WriteString("\n"); err != nil { // the last line may have been cut off
		return errors.Join(fmt.Errorf("write the journal: %w", err), file.Close())
	}
	j.file = file
	return nil
}

// Close closes the file.
func (j *Journal) Close() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	if err := j.file.Close(); err != nil {
		return fmt.Errorf("close the journal: %w", err)
	}
	j.file = nil
	return nil
}

// add remembers an object that was made again.
func (j *Journal) add(uid, from types.UID) error {
	if j == nil {
		return nil
	}
	text, err := json.Marshal(line{uid, from})
	if err != nil {
		return fmt.Errorf("encode a line of the journal: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.from[uid] = from
	if j.file == nil {
		return nil
	}
	if _, err := j.file.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	return nil
}

// shorten drops the older half of a file that is too long.
func shorten(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() <= mostJournal {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the size of the journal: %w", err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	newer := content[len(content)/2:]
	newer = newer[bytes.IndexByte(newer, '\n')+1:]
	if err := os.WriteFile(path+".new", newer, 0o600); err != nil {
		return fmt.Errorf("shorten the journal: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("shorten the journal: %w", err)
	}
	return nil
}
