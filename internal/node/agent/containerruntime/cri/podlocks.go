package cri

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// podLocks has a lock for the files of each pod. The removal of a volume takes as long as its containers want: it must
// hold up no other pod. The zero value has no locks. It is safe for concurrent use.
type podLocks struct {
	mu    sync.Mutex
	locks map[types.UID]*podLock // guarded by mu; those that somebody holds or waits for
}

type podLock struct {
	mu    sync.Mutex
	users int // guarded by podLocks.mu; who hold it or wait for it
}

// lock locks the files of a pod until the caller calls unlock.
func (l *podLocks) lock(uid types.UID) (unlock func()) {
	l.mu.Lock()
	own := l.enterLocked(uid)
	l.mu.Unlock()
	own.mu.Lock()
	return func() { l.leave(uid, own) }
}

// tryLock is lock, unless somebody holds the lock: then it does not wait, and unlock is nil.
func (l *podLocks) tryLock(uid types.UID) (unlock func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.locks[uid] != nil {
		return nil
	}
	own := l.enterLocked(uid)
	own.mu.Lock() // nobody else has it
	return func() { l.leave(uid, own) }
}

func (l *podLocks) enterLocked(uid types.UID) *podLock {
	own := l.locks[uid]
	if own == nil {
		if l.locks == nil {
			l.locks = map[types.UID]*podLock{}
		}
		own = &podLock{}
		l.locks[uid] = own
	}
	own.users++
	return own
}

func (l *podLocks) leave(uid types.UID, own *podLock) {
	own.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(l.locks, uid)
	}
}
