// Package storybook shares the stories of deletions: the collector and the API server record events in a Book, while
// readers wait for changes. Package story decides what the events mean; this package adds a lock and a channel.
package storybook

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// Book is a story.Book that is safe for concurrent use. Its methods are described there, and at story.Reader.
type Book struct {
	hasGuards atomic.Bool // as in the book; read without the lock

	mu   sync.Mutex
	book *story.Book   // guarded by mu
	wake chan struct{} // guarded by mu; closed at the next change; nil without waiters
}

// New returns a Book without stories.
func New() *Book { return &Book{book: story.NewBook()} }

// Requested records a request to delete an object.
func (b *Book) Requested(r story.Request) {
	b.record(func(book *story.Book) { book.Requested(r) })
}

// Seen records the observation of an object. Nearly all objects are neither being deleted nor protected: these do not
// wait for readers.
func (b *Book) Seen(o *ownership.Object, home ownership.UID, now time.Time) {
	if o.Phase == ownership.Active && !o.Protected && !b.hasGuards.Load() {
		return
	}
	b.record(func(book *story.Book) { book.Seen(o, home, now) })
}

// Gone records that an object is gone.
func (b *Book) Gone(o *ownership.Object, home ownership.UID, now time.Time) {
	b.record(func(book *story.Book) { book.Gone(o, home, now) })
}

// Listed records that all objects of a kind were listed.
func (b *Book) Listed(kind ownership.Kind, isThere func(ownership.UID) bool, now time.Time) {
	b.record(func(book *story.Book) { book.Listed(kind, isThere, now) })
}

// Stayed records that an object stays although an owner is deleted.
func (b *Book) Stayed(object story.Ref, keptBy, lost []story.Ref, now time.Time) {
	b.record(func(book *story.Book) { book.Stayed(object, keptBy, lost, now) })
}

// Refused records that the server refuses a request about an object.
func (b *Book) Refused(o *ownership.Object, home ownership.UID, r refusal.Refusal, now time.Time) {
	b.record(func(book *story.Book) { book.Refused(o, home, r, now) })
}

// RefusalEnded records that the server has accepted a request about an object, or that none is needed any longer.
func (b *Book) RefusalEnded(uid ownership.UID, stays bool, now time.Time) {
	b.record(func(book *story.Book) { book.RefusalEnded(uid, stays, now) })
}

// record records an event, and wakes the readers if it has changed a story.
func (b *Book) record(event func(*story.Book)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.book.Changes()
	event(b.book)
	b.hasGuards.Store(b.book.HasGuards())
	if b.wake != nil && b.book.Changes() != before {
		close(b.wake)
		b.wake = nil
	}
}

// List returns the stories that a reader may see, the latest first.
func (b *Book) List(sees story.Sees, now time.Time) []story.Summary {
	return b.reader(sees, now).List()
}

// Since returns the stories that have changed after a number of changes, the removed stories, and the current number
// of changes.
func (b *Book) Since(change uint64, sees story.Sees, now time.Time) (changed []story.Summary, removed []ownership.UID, at uint64) {
	return b.reader(sees, now).Since(change)
}

// Story returns a story, its objects that have changed since a position, and the next position.
func (b *Book) Story(id ownership.UID, since story.Position, sees story.Sees, now time.Time) (s story.Summary, objects []story.Object, next story.Position, ok bool) {
	return b.reader(sees, now).Story(id, since)
}

// reader returns a reader that holds the lock only while it copies.
func (b *Book) reader(sees story.Sees, now time.Time) story.Reader {
	return story.Reader{Sees: sees, Now: now, Read: func(read func(*story.Book)) {
		b.mu.Lock()
		defer b.mu.Unlock()
		read(b.book)
	}}
}

// Changed returns a channel that is closed at the next change after the given number of changes; it is already closed
// if there was such a change.
func (b *Book) Changed(after uint64) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.book.Changes() > after {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	if b.wake == nil {
		b.wake = make(chan struct{})
	}
	return b.wake
}

// Changes returns the number of changes so far.
func (b *Book) Changes() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.book.Changes()
}
