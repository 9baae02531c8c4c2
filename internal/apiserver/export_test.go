package apiserver

import (
	"net/http"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// Intercept puts a filter in front of all handlers of a server that is not running yet. Requests wait for its start
// for eventually.Patience.
func (s *Server) Intercept(filter func(http.Handler) http.Handler) {
	s.start.gate.patience = eventually.Patience
	h := s.generic.Handler
	h.FullHandlerChain = filter(h.FullHandlerChain)
}

// ReadChecks returns the checks of /readyz for which a slow start waits.
func ReadChecks() []string { return readChecks() }
