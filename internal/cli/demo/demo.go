// Package demo contains the stories that coppice demo plays and the tree that it draws.
// It does no I/O: a story is a list of steps, each with a text that announces it, a
// kubectl command, and expectations of its effects; a View is the state that watch events
// have shown so far. Package stage plays a story on a control plane.
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

// Step is one command with its expected effects.
type Step struct {
	// Tell announces the step in a line or two.
	Tell string
	// Kubectl holds the arguments of the command. The files that they name are in Manifests.
	Kubectl []string
	// Expect lists the conditions that must become true, in this order. The last one must also
	// hold in lists from the server; the others may be true only briefly.
	Expect []Expectation
	// Question, if set, is the question to an audience before the command runs.
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

// Manifests returns the contents of the commands' files, by file name.
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
