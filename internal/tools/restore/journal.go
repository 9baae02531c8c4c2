package restore

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

// mostJournal bounds the file of a journal, in bytes: about 170 000 objects. Open drops the older half of a longer
// file.
const mostJournal = 16 << 20

// Journal records which objects were recreated, and from which. It is the only evidence: anyone who takes the name of
// a deleted object can write an annotation about it. It is safe for concurrent use. A nil Journal is empty, and
// records nothing.
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

// OpenJournal reads the journal in a file, which need not exist. It skips incomplete lines.
func OpenJournal(path string) (*Journal, error) {
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the list of restored objects: %w", err)
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
		return nil, fmt.Errorf("read the list of restored objects from %s: %w; remove the file to begin anew", path, err)
	}
	return j, nil
}

// From returns the former UID of a recreated object; empty if unknown.
func (j *Journal) From(uid types.UID) types.UID {
	if j == nil {
		return ""
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.from[uid]
}

// Open creates the file if it does not exist, so that objects can be added.
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

// add records a recreated object.
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
	// A name that nobody can foresee: a link with it would lead to another file, and another undo may use it.
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("shorten the journal: %w", err)
	}
	_, err = temporary.Write(newer)
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("shorten the journal: %w", err), os.Remove(temporary.Name()))
	}
	return nil
}
