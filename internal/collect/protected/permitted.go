package protected

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// mostHeld bounds the objects in the permits that a process holds: 64 MB. The oldest permits are read again when needed.
const mostHeld = 16 << 20

// permitted holds permits in this process. All servers share them: for an object without a permit, it looks for those that
// other servers have written. It is safe for concurrent use.
type permitted struct {
	shared Permits
	now    func() time.Time

	mu     sync.Mutex
	held   map[string]protection.Permit // guarded by mu, like all fields below; by name
	size   int                          // of held, in objects
	latest map[string]permit            // the last one for an object, by UID; bounded like held
}

// permit is a permit that was written.
type permit struct {
	digest string
	at     time.Time
}

func newPermitted(shared Permits, now func() time.Time) *permitted {
	return &permitted{shared: shared, now: now, held: map[string]protection.Permit{}, latest: map[string]permit{}}
}

// add permits the deletion of objects. Repeated calls for the same objects, as one request makes them, write once.
func (p *permitted) add(ctx context.Context, root string, uids []string) error {
	now := permit{protection.DigestOf(uids), p.now()}
	p.mu.Lock()
	last := p.latest[root]
	p.mu.Unlock()
	if last.digest == now.digest && now.at.Sub(last.at) < PermittedFor/2 {
		return nil
	}
	for i, part := range protection.NewPermits(uids) {
		name := fmt.Sprintf("%s-%s-%d", p.nameAt(now.at), root, i)
		if err := p.shared.Put(ctx, name, part.Encode()); err != nil {
			return err
		}
		p.hold(name, part)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.latest) >= mostNames {
		clear(p.latest)
	}
	p.latest[root] = now
	return nil
}

// mostNames bounds the texts that are held beside the permits.
const mostNames = 4096

// hold adds a permit, and drops the oldest ones if there are too many.
func (p *permitted) hold(name string, permit protection.Permit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, isHeld := p.held[name]; isHeld {
		return
	}
	p.held[name] = permit
	p.size += len(permit)
	for p.size > mostHeld || len(p.held) > mostNames {
		oldest := name
		for other := range p.held {
			oldest = min(oldest, other)
		}
		p.size -= len(p.held[oldest])
		delete(p.held, oldest)
	}
}

// has reports whether the deletion of an object was permitted. It reads the permits that it does not hold, and drops those
// that are no longer kept.
func (p *permitted) has(ctx context.Context, uid string) (bool, error) {
	if p.holds(uid) {
		return true, nil
	}
	names, err := p.shared.Names(ctx)
	if err != nil {
		return false, err
	}
	p.drop(names)
	slices.Sort(names)
	for _, name := range slices.Backward(names) {
		if p.isHeld(name) {
			continue
		}
		text, err := p.shared.Get(ctx, name)
		if err != nil {
			return false, err
		}
		permit, err := protection.DecodePermit(text)
		if err != nil {
			continue // nobody but servers writes permits; it permits nothing
		}
		p.hold(name, permit)
		if p.holds(uid) {
			return true, nil
		}
	}
	return false, nil
}

func (p *permitted) holds(uid string) bool {
	oldest := p.nameAt(p.now().Add(-PermittedFor))
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, permit := range p.held {
		if name > oldest && permit.Has(uid) {
			return true
		}
	}
	return false
}

// nameAt begins the names of the permits of a time. They are in its order.
func (p *permitted) nameAt(at time.Time) string { return fmt.Sprintf("%016x", at.UnixNano()) }

func (p *permitted) isHeld(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, isHeld := p.held[name]
	return isHeld
}

// drop drops the permits that are no longer kept.
func (p *permitted) drop(kept []string) {
	still := make(map[string]bool, len(kept))
	for _, name := range kept {
		still[name] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, permit := range p.held {
		if !still[name] {
			p.size -= len(permit)
			delete(p.held, name)
		}
	}
}
