package process

import "sync"

// Role is the role of this process in an election. The zero value means that it leads. It is safe
// for concurrent use.
type Role struct {
	mu     sync.Mutex
	holder string // guarded by mu; the identity of the leader while this process stands by
}

// StandsBy reports whether this process stands by, and returns the identity of the leader, "nobody"
// if there is no leader.
func (r *Role) StandsBy() (holder string, yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holder, r.holder != ""
}

func (r *Role) standBy(holder string) { r.set(holder) }
func (r *Role) lead()                 { r.set("") }

func (r *Role) set(holder string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holder = holder
}
