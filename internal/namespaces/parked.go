package namespaces

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/protection"
)

// park remembers that the deletion of an object was refused because it is protected (R28).
func (t *termination) park(r refusal, now time.Time) {
	if t.refused == nil {
		t.refused = make(map[types.UID]protection.Held)
	}
	t.refused[r.object.UID] = t.refused[r.object.UID].Refuse(r.object.Version, r.message, now)
}

// parked returns what says of an object whether its deletion was refused and is not to be tried again
// yet: it has not changed, and a minute is not over. The function may be called concurrently until
// the next call of park.
func (t *termination) parked(now time.Time) func(Object) (message string, parked bool) {
	if len(t.refused) == 0 {
		return nil
	}
	return func(o Object) (string, bool) {
		held, known := t.refused[o.UID]
		return held.Message, known && held.Wait(o.Version, now) > 0
	}
}
