package main

import (
	"strings"
	"testing"
	"time"
)

func TestList(t *testing.T) {
	begin := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	text, err := list([]action{
		{Mode: "build", Package: "fmt", CmdUser: 2 * time.Second, TimeStart: begin, TimeDone: begin.Add(2 * time.Second)},
		{Mode: "build", Package: "net/http", CmdUser: 3 * time.Second, CmdSys: time.Second, TimeStart: begin},
		{Mode: "build", Package: "k8s.io/api/core/v1", CmdUser: 5 * time.Second, TimeStart: begin},
		{Mode: "build", Package: "k8s.io/api/apps/v1", CmdUser: 100 * time.Millisecond, TimeStart: begin},
		{Mode: "build", Package: "sigs.k8s.io/yaml", CmdUser: 300 * time.Millisecond, TimeStart: begin},
		{Mode: "build", Package: "unsafe"},
		{Mode: "link", Package: "cmd/coppice", CmdUser: 10 * time.Second, TimeStart: begin.Add(2 * time.Second), TimeDone: begin.Add(65 * time.Second)},
		{Mode: "vet", Package: "fmt", CmdUser: time.Hour},
	}, machine{"abc", 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"with 2 processors where\nnothing was compiled before, at commit abc on 2026-01-02: **1m5s**, for 5 packages. The",
		"\ntook 21 s of processor time",
		"| (the linker) | 0 | 10.0 |\n| the standard library | 2 | 6.0 |\n| k8s.io/api/core | 1 | 5.0 |\n| the others | 2 | 0.4 |\n",
		"| k8s.io/api/core/v1 | 1 | 5.0 |\n| net/http | 1 | 4.0 |\n| fmt | 1 | 2.0 |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
}

// TestListOfNothing: a fully cached build has no figures.
func TestListOfNothing(t *testing.T) {
	if text, err := list([]action{{Mode: "build", Package: "fmt"}}, machine{"abc", 2}); err == nil {
		t.Errorf("got %q, want an error", text)
	}
}
