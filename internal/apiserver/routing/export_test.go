package routing

// Known is how many shapes are remembered.
func (r *Router) Known() int { return len(r.known) }
