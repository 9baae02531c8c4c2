// Package demo contains the stories that coppice demo plays and the tree that it draws.
// It does no I/O: a story is a list of steps, each with a text that announces it, the
// kubectl command to run, and what is expected to follow; a View is what watches have
// shown so far. Package stage plays a story on a control plane.
package demo

import (
	"embed"
	"fmt"
	"strings"
)

// Story is a sequence of steps in a namespace of its own.
type Story struct {
	Name      string
	Title     string
	Namespace string
	Steps     []Step
}

// Step is one command and what follows.
type Step struct {
	// Tell announces in a line or two what is about to happen.
	Tell string
	// Kubectl holds the arguments of the command. The files that they name are in Manifests.
	Kubectl []string
	// Expect lists what must become true, in this order. The last one must also hold in lists
	// from the server; the others may be true only briefly.
	Expect []Expectation
	// Question, if set, is what an audience is asked before the command runs.
	Question *Question
}

// Expectation is a condition that must become true.
type Expectation struct {
	Says  string
	Holds func(*View) bool
}

// Command returns the command of a step as a user would type it.
func (s Step) Command() string {
	words := []string{"kubectl"}
	for _, word := range s.Kubectl {
		if strings.ContainsAny(word, ` "{}$*?()[]`) {
			word = "'" + word + "'"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

//go:embed manifests/*.yaml
var files embed.FS

// Manifests returns the contents of the files that the commands use, by name.
func Manifests() (map[string][]byte, error) {
	entries, err := files.ReadDir("manifests")
	if err != nil {
		return nil, fmt.Errorf("read the manifests: %w", err)
	}
	manifests := map[string][]byte{}
	for _, entry := range entries {
		if manifests[entry.Name()], err = files.ReadFile("manifests/" + entry.Name()); err != nil {
			return nil, fmt.Errorf("read the manifests: %w", err)
		}
	}
	return manifests, nil
}
