//go:build unix

package assets_test

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/system/assets"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

const roleVariable = "COPPICE_PARENT_TEST"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "child":
		ended := assets.ParentEnded()
		os.Stdout.WriteString("watching\n")
		<-ended
		os.Stdout.WriteString("ended\n")
		os.Exit(0)
	case "parent":
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), roleVariable+"=child")
		child.Stdout = os.Stdout
		_ = child.Run() // until this process is killed
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A child detects that its parent was killed, and not earlier.
func TestChildDetectsTheEndOfItsParent(t *testing.T) {
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), roleVariable+"=parent")
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	process.Stdout = in
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	defer out.Close()
	if err := out.SetReadDeadline(time.Now().Add(eventually.Patience)); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "watching" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = process.Wait()
	if line, err := lines.ReadString('\n'); err != nil || strings.TrimSpace(line) != "ended" {
		t.Errorf("%q, %v", line, err)
	}
}
