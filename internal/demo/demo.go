// Package demo holds the stories that coppice demo plays, and the tree that it draws
// meanwhile. It does nothing itself: a story is a list of steps, each with what is to
// be told, the kubectl command that makes it happen, and what is to come of it; a View
// is what watches have told so far. Package stage plays a story on a control plane.
package demo

import (
	"embed"
	"fmt"
	"strings"
)

// Story is a play of a few steps in a namespace of its own.
type Story struct {
	Name      string
	Title     string
	Namespace string
	Steps     []Step
}

// Step is one command and what comes of it.
type Step struct {
	// Tell is what is about to happen, in a line or two.
	Tell string
	// Kubectl are the arguments of the command; files are those of Manifests.
	Kubectl []string
	// Expect is to come true, one after the other. The last one is asked of the server
	// once more, by lists; the others may pass by.
	Expect []Expectation
}

// Expectation is something that is to come true.
type Expectation struct {
	Says  string
	Holds func(*View) bool
}

// Command is the command of a step as one would type it.
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

// Manifests are the files that the commands name, with their contents.
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
