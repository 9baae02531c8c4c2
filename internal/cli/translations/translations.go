// Package translations prevents control planes from loading the translations of kubectl, which is in the
// same binary. kubectl's packages translate variables before main begins: that loads a catalogue, which
// takes 3 MB and more of the memory of a start.
//
// Go initializes the packages of a program in the order of their import paths, as far as their
// imports allow, so this one comes before kubectl's. TestNotTranslated fails if that changes.
package translations

import (
	"os"

	"k8s.io/kubectl/pkg/util/i18n"
)

func init() { //nolint:gochecknoinits // it must come before the initialization of other packages
	// The root command has no flags, so the first argument is always a command.
	if len(os.Args) > 1 && os.Args[1] == "up" {
		_ = i18n.SetLoadTranslationsFunc(func() error { return nil }) // it returns an error if translations are already loaded
	}
}
