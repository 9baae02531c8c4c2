package mcpserver

import (
	"crypto/sha256"
	"errors"
	"slices"
	"sync"
)

// mostShown bounds the previews that a session remembers, the latest ones.
const mostShown = 64

// deletionKey identifies the arguments of a deletion.
type deletionKey [sha256.Size]byte

// shownPreview is a preview that a session has shown.
type shownPreview struct {
	digest string
	key    deletionKey
}

// shown has the previews that a session has shown and that no deletion has used. It is safe for concurrent use.
type shown struct {
	mu  sync.Mutex
	all []shownPreview // guarded by mu; the latest is the last
}

func newShown() *shown { return &shown{} }

// add adds a preview.
func (s *shown) add(p shownPreview) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(q shownPreview) bool { return p == q })
	if len(s.all) == mostShown {
		s.all = slices.Delete(s.all, 0, 1)
	}
	s.all = append(s.all, p)
}

// take removes a preview, so that it permits one deletion. It returns an error if the session has not shown it.
func (s *shown) take(p shownPreview) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.all, p); at >= 0 {
		s.all = slices.Delete(s.all, at, at+1)
		return nil
	}
	if slices.ContainsFunc(s.all, func(q shownPreview) bool { return p.digest == q.digest }) {
		return errors.New("nothing is deleted: the preview with this digest was of other arguments; repeat exactly the arguments of that preview")
	}
	return errors.New("nothing is deleted: this session has shown no preview with this digest, or has used it; call the tool preview, show its answer to the user, and pass its digest")
}
