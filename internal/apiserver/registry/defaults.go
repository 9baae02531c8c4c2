package registry

// setDefault sets a field that has its zero value.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// setDefaultPtr sets a field that is nil.
func setDefaultPtr[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
