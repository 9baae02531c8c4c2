package realserver

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

type tool struct{ Path string }

// go mod tidy keeps what the tools of a module need, and nothing else: a program that is no tool could not be built any more.
func TestProgramsAreToolsOfTheirModules(t *testing.T) {
	for _, name := range []Binary{Etcd, APIServer, ControllerManager, Scheduler, Kwok} {
		from := name.origin()
		edit := exec.Command("go", "mod", "edit", "-json")
		edit.Dir = filepath.Join("..", from.module)
		out, err := edit.Output()
		if err != nil {
			t.Fatalf("%s: %v", edit.Dir, explained(err))
		}
		var module struct{ Tool []tool }
		if err := json.Unmarshal(out, &module); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(module.Tool, tool{from.command}) {
			t.Errorf("bench/%s/go.mod has no tool %s: %v", from.module, from.command, module.Tool)
		}
	}
}
