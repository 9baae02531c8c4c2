//go:build !linux

package cri

import "errors"

// bindInside is not supported.
func bindInside(_, _, _ string) error { return errors.ErrUnsupported }

// unmount does nothing: nothing was mounted.
func unmount(string) error { return nil }

// mountsBelow returns nothing: nothing was mounted.
func mountsBelow(string) ([]string, error) { return nil, nil }
