package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/testing/wireserver"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// A command replaces the backup of its own last attempt, and no other file.
func TestBackupReplacesItsOwnFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "it.backup")
	own := &backupFlags{file: file}
	for _, content := range []string{"first", "second"} {
		if err := own.save([]byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != content {
			t.Errorf("%q, %v; want %q", got, err, content)
		}
	}
	isThere := func(f *backupFlags) bool {
		checked, saved := f.checkNew(), f.save([]byte("new"))
		return checked != nil && saved != nil && strings.Contains(checked.Error(), "already exists")
	}
	if !isThere(&backupFlags{file: file}) {
		t.Error("another command replaces the file")
	}
	other := file + ".other"
	if err := os.WriteFile(other, []byte("foreign"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, file); err != nil {
		t.Fatal(err)
	}
	if !isThere(own) {
		t.Error("the command replaces a file that somebody else has put there")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := own.save([]byte("third")); err != nil {
		t.Errorf("after the file is gone: %v", err)
	}
	if err := new(backupFlags).checkNew(); err != nil {
		t.Errorf("without --backup: %v", err)
	}
}

// unlisted is a server that does not list Secrets.
type unlisted struct {
	http.Handler

	code int // of the answer to a list; 200 for a list
}

func (u unlisted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if u.code == http.StatusOK || !strings.HasSuffix(r.URL.Path, "/secrets") {
		u.Handler.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(u.code)
	_, _ = fmt.Fprintf(w, `{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": %d, "message": "no list for you"}`, u.code)
}

// A backup is incomplete if a resource cannot be read of which the deletion may remove objects: then the preview fails,
// and coppice delete deletes nothing.
func TestIncompleteBackupDeletesNothing(t *testing.T) {
	for _, target := range []string{"configmaps/a", "namespaces/shop"} {
		for _, code := range []int{http.StatusForbidden, http.StatusInternalServerError, http.StatusOK} {
			t.Run(fmt.Sprintf("%s, %d", target, code), func(t *testing.T) {
				home := atHome(t)
				cluster := wireserver.New(wireserver.Resource{Name: "configmaps", Kind: "ConfigMap"}, wireserver.Resource{Name: "secrets", Kind: "Secret"})
				cluster.Put("namespaces", metav1.ObjectMeta{Name: "shop", UID: "shop"})
				cluster.Put("configmaps", metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "a"})
				cluster.Put("secrets", metav1.ObjectMeta{Namespace: "shop", Name: "s", UID: "s"})
				server := httptest.NewServer(unlisted{cluster, code})
				t.Cleanup(server.Close)
				args := []string{"delete", target, "-n", "shop", "--server", server.URL, "--backup-key", filepath.Join(home, "key")}
				shown := runFully(t.Context(), append([]string{"preview"}, append(args, "-o", "json", "--backup", filepath.Join(home, "preview"))...)...)
				var report preview.Report
				if err := json.Unmarshal([]byte(shown.out), &report); err != nil {
					t.Fatalf("%v\n%s%s", err, shown.out, shown.err)
				}
				deleted := runFully(t.Context(), append(args, "--backup", filepath.Join(home, "delete"), "--confirm", report.Digest)...)
				want := ExitFailed
				if code == http.StatusOK {
					want = ExitOK
				}
				for _, got := range []ran{shown, deleted} {
					if isSaid := strings.Contains(got.err, "may lack objects") && strings.Contains(got.err, ": secrets"); got.code != want || isSaid != (want == ExitFailed) {
						t.Errorf("exit code %d, want %d\n%s", got.code, want, got.err)
					}
				}
				resource, uid, _ := strings.Cut(target, "/")
				if isThere := slices.Contains(cluster.UIDs(resource), types.UID(uid)); isThere != (want == ExitFailed) || isThere != strings.Contains(deleted.err, "nothing is deleted") {
					t.Errorf("the object exists: %t\n%s%s", isThere, deleted.out, deleted.err)
				}
			})
		}
	}
}
