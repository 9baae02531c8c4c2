package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestFlagsWithinANamespaceAreTheSame: only the namespace differs, so that a tool asks the same server as the same
// user.
func TestFlagsWithinANamespaceAreTheSame(t *testing.T) {
	atHome(t)
	from := clusterFlags{kube: kubeFlags(&cobra.Command{})}
	value := reflect.ValueOf(from.kube).Elem()
	for n := range value.NumField() {
		field, name := value.Field(n), value.Type().Field(n).Name
		if !value.Type().Field(n).IsExported() || field.Kind() != reflect.Pointer || name == "CacheDir" || name == "DisableCompression" {
			continue
		}
		field.Set(reflect.New(field.Type().Elem()))
	}
	to := reflect.ValueOf(from.within("").kube).Elem()
	for n := range value.NumField() {
		field := value.Type().Field(n)
		if !field.IsExported() {
			continue
		}
		if value.Field(n).Pointer() != to.Field(n).Pointer() {
			t.Errorf("%s differs", field.Name)
		}
	}
	if got := from.within("shop"); *got.kube.Namespace != "shop" || *from.kube.Namespace != "" {
		t.Errorf("the namespaces are %q and %q", *got.kube.Namespace, *from.kube.Namespace)
	}
}

// TestOfTwoTokensOneIsStored makes two tokens after both servers have found no file: the second one gets the first token.
func TestOfTwoTokensOneIsStored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	first, err := makeToken(path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := makeToken(path)
	if err != nil {
		t.Fatal(err)
	}
	if stored, err := readToken(path); err != nil || first != stored || second != stored {
		t.Errorf("tokens %s and %s, and %s is stored: %v", first, second, stored, err)
	}
}

// TestTokenFileIsPrivate: the server makes a token that only its user can read, keeps it, and refuses a file that others
// can read or that has no token.
func TestTokenFileIsPrivate(t *testing.T) {
	t.Parallel()
	f := mcpHTTP{tokenFile: filepath.Join(t.TempDir(), "dir", "token")}
	made, path, err := f.token()
	if err != nil || path != f.tokenFile || len(made) < shortestToken {
		t.Fatalf("%q %q %v", made, path, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if again, _, err := f.token(); again != made || err != nil {
		t.Errorf("the second start has another token: %v", err)
	}
	for _, test := range []struct {
		text, says string
		mode       os.FileMode
	}{
		{made, "other users may read", 0o644},
		{made, "other users may read", 0o640},
		{"", "has no token", 0o600},
		{"short", "has no token", 0o600},
		{made + " " + made, "has no token", 0o600},
	} {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(test.text), test.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, test.mode); err != nil { // whatever the umask
			t.Fatal(err)
		}
		if _, _, err := (&mcpHTTP{tokenFile: file}).token(); err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), made) {
			t.Errorf("%q with mode %v: %v, want %q", test.text, test.mode, err, test.says)
		}
	}
}

// TestTokenFileIsNoDanglingLink: the server neither replaces the link nor makes the file at its end.
func TestTokenFileIsNoDanglingLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link, end := filepath.Join(dir, "token"), filepath.Join(dir, "end")
	if err := os.Symlink(end, link); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	if _, _, err := (&mcpHTTP{tokenFile: link}).token(); err == nil || !strings.Contains(err.Error(), link+" is a link to "+end+", which does not exist:") {
		t.Errorf("the error is %v", err)
	}
	if to, err := os.Readlink(link); err != nil || to != end {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if _, err := os.Lstat(end); !os.IsNotExist(err) {
		t.Errorf("the end of the link: %v", err)
	}
	if _, _, err := (&mcpHTTP{tokenFile: filepath.Join(dir, "none", "token")}).token(); err != nil {
		t.Errorf("without a link: %v", err)
	}
}

// TestBackupsAreBounded: an agent that deletes and restores all day does not fill the disk.
func TestBackupsAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := checkBackups(dir); err != nil {
		t.Error(err)
	}
	file := filepath.Join(dir, "a.backup")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, mostBackups); err != nil { // takes no blocks
		t.Fatal(err)
	}
	if err := checkBackups(dir); err == nil || !strings.Contains(err.Error(), "remove old ones") {
		t.Errorf("the error is %v", err)
	}
}
