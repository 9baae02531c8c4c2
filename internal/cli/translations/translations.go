// Package translations spares control planes the translations of kubectl, which is in the same
// binary. Variables of kubectl's packages are translated before main begins: that loads a catalogue,
// which takes 3 MB and more of the memory that a start needs.
//
// The packages of a program are initialized in the order of their import paths, as far as their
// imports allow, so this one comes before kubectl's. TestNotTranslated fails should that change.
package translations

import (
	"os"

	"k8s.io/kubectl/pkg/util/i18n"
)

func init() { //nolint:gochecknoinits // it must come before the initialization of other packages
	// The root command has no flags, so the first argument is always a command.
	if len(os.Args) > 1 && os.Args[1] == "up" {
		_ = i18n.SetLoadTranslationsFunc(func() error { return nil }) // it fails if they were loaded
	}
}
