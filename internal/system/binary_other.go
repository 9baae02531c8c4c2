//go:build !linux

package system

// unmapBinary leaves the pages of the program to the operating system.
func unmapBinary() error { return nil }
