package main

import (
	"strings"
	"testing"
	"time"
)

func TestList(t *testing.T) {
	text, err := list([]action{
		{Mode: "build", Package: "fmt", CmdUser: 2 * time.Second},
		{Mode: "build", Package: "net/http", CmdUser: 3 * time.Second, CmdSys: time.Second},
		{Mode: "build", Package: "k8s.io/api/core/v1", CmdUser: 5 * time.Second},
		{Mode: "build", Package: "k8s.io/api/apps/v1", CmdUser: 100 * time.Millisecond},
		{Mode: "build", Package: "sigs.k8s.io/yaml", CmdUser: 300 * time.Millisecond},
		{Mode: "build", Package: "unsafe"},
		{Mode: "link", Package: "cmd/coppice", CmdUser: 10 * time.Second},
		{Mode: "vet", Package: "fmt", CmdUser: time.Hour},
	}, "abc", time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"at commit abc on 2026-01-02: 5 packages,\n21 s.",
		"| (the linker) | 0 | 10.0 |\n| the standard library | 2 | 6.0 |\n| k8s.io/api/core | 1 | 5.0 |\n| the others | 2 | 0.4 |\n",
		"| k8s.io/api/core/v1 | 1 | 5.0 |\n| net/http | 1 | 4.0 |\n| fmt | 1 | 2.0 |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
}

// TestListOfNothing: a build that found everything compiled tells nothing.
func TestListOfNothing(t *testing.T) {
	if text, err := list([]action{{Mode: "build", Package: "fmt"}}, "abc", time.Now()); err == nil {
		t.Errorf("got %q, want an error", text)
	}
}
