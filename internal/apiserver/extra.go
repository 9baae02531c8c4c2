package apiserver

import "net/http"

// Handle serves a path that is no resource, and all that it answers to. Whoever asks
// is authenticated and needs the right to the path, as to any other of the server's.
// It may be called at any time.
func (s *Server) Handle(path string, handler http.Handler) {
	s.generic.Handler.NonGoRestfulMux.Handle(path, handler)
}
