package apiserver

import (
	"net/http"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// Intercept puts a filter in front of all handlers of a server that does not run yet. Requests wait for its start as
// long as a test does.
func (s *Server) Intercept(filter func(http.Handler) http.Handler) {
	s.gate.patience = eventually.Patience
	h := s.generic.Handler
	h.FullHandlerChain = filter(h.FullHandlerChain)
}

// ReadChecks are the checks of /readyz that a slow start waits for.
func ReadChecks() []string { return readChecks() }
