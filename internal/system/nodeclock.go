package system

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/coppice-dev/coppice/internal/node/agent/containerruntime/simulated"
	"github.com/coppice-dev/coppice/internal/rules/escape"
)

// nodeClockPath is the path of the clock of simulated nodes, if it is movable: GET reads it, and
// POST with ?advance=30s moves it forward.
const nodeClockPath = controllersPrefix + "/nodes/clock"

// nodeClock serves a clock.
type nodeClock struct{ clock *simulated.Clock }

// ServeHTTP implements http.Handler.
func (c nodeClock) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := c.clock.Now()
	switch r.Method {
	case http.MethodGet:
	case http.MethodPost:
		text := r.URL.Query().Get("advance")
		by, err := time.ParseDuration(text)
		if err != nil || by < 0 {
			http.Error(w, escape.Line("advance="+text+" is not a duration that is not negative: "+nodeClockPath+"?advance=30s"), http.StatusBadRequest)
			return
		}
		now = c.clock.Advance(by)
	default:
		http.Error(w, "only GET and POST are supported", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]time.Time{"now": now}) // a client that has disconnected retries
}
