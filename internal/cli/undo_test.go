package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The argument of undo is a backup only if it is a file, and one that is no backup may have the name of an object.
func TestUndoTellsFilesFromObjects(t *testing.T) {
	atHome(t)
	t.Chdir(t.TempDir())
	for _, dir := range []string{"configmap/a", "secret"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join("secret", "key"), []byte("no backup\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const unreachable = "127.0.0.1:1"
	for line, want := range map[string]string{
		"configmap/a": unreachable, "configmap a": unreachable, "secret key": unreachable,
		"secret/key":   `secret/key: it is no backup as "coppice preview delete --backup" writes it; to name the deleted object instead of the file: coppice undo secret key`,
		"./secret/key": `./secret/key: it is no backup as "coppice preview delete --backup" writes it`,
		"secret":       "secret is not a file, a TYPE/NAME or a UID", "./configmap/a": "./configmap/a is not a file, a TYPE/NAME or a UID",
		"-A configmap/a": "a name needs a namespace: leave out --all-namespaces",
	} {
		got := runFully(t.Context(), append([]string{"undo", "--server", "https://" + unreachable}, strings.Fields(line)...)...)
		if got.code == ExitOK || !strings.Contains(got.err, want) || strings.HasPrefix(line, "./") && strings.Contains(got.err, "to name the deleted object") {
			t.Errorf("%s: exit code %d, %s; want %s", line, got.code, got.err, want)
		}
	}
}
