package election

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/coppice-dev/coppice/internal/web"
)

// Role is what this process is to the others. One that stands by is ready: it does
// all that is asked of it. The zero value leads. It is safe for concurrent use.
type Role struct {
	mu     sync.Mutex
	leader string // guarded by mu; who leads, when this one stands by
}

func (r *Role) standBy(leader string) { r.set(leader) }
func (r *Role) lead()                 { r.set("") }

func (r *Role) set(leader string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leader = leader
}

// Answering lets a process that stands by say so, instead of what it does not know.
func (r *Role) Answering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.mu.Lock()
		leader := r.leader
		r.mu.Unlock()
		switch {
		case leader == "", request.URL.Path == web.Metrics, request.URL.Path == web.Healthz, request.URL.Path == web.Livez:
			next.ServeHTTP(w, request)
		case request.URL.Path == web.Readyz:
			_, _ = fmt.Fprintf(w, "ok, standing by: %s leads\n", leader)
		default:
			http.Error(w, "standing by: "+leader+" leads", http.StatusServiceUnavailable)
		}
	})
}
