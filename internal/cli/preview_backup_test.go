package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/apiserver/backup"
	"github.com/coppice-dev/coppice/internal/apiserver/keyfile"
	"github.com/coppice-dev/coppice/internal/testing/wireserver"
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/undo"
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

// unlisted is a server that does not list Secrets. Its objects have their kinds if they are read whole.
type unlisted struct {
	http.Handler

	code   int  // of the answer to a list; 200 for a list
	unread bool // Secrets are not read one by one either
}

func (u unlisted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	isSecret := strings.HasSuffix(r.URL.Path, "/secrets") || u.unread && strings.Contains(r.URL.Path, "/secrets/")
	if u.code == http.StatusOK || !isSecret {
		recorder := httptest.NewRecorder()
		u.Handler.ServeHTTP(recorder, r)
		maps.Copy(w.Header(), recorder.Header())
		w.WriteHeader(recorder.Code)
		_, _ = io.WriteString(w, inWhole(r, recorder.Body.String()))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(u.code)
	_, _ = fmt.Fprintf(w, `{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": %[1]d, "message": "no list for you, %[1]d"}`, u.code)
}

// inWhole returns the answer of a wireserver to a request as that of a server that has whole objects.
func inWhole(r *http.Request, answer string) string {
	path := strings.Split(r.URL.Path, "/")
	kinds := map[string]string{"configmaps": "ConfigMap", "secrets": "Secret", "namespaces": "Namespace"}
	kind := kinds[path[len(path)-2]]
	if last := path[len(path)-1]; kind == "" && last != "namespaces" {
		kind = kinds[last] // of a list
	}
	if kind == "" || strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
		return answer
	}
	return strings.NewReplacer("meta.k8s.io/v1", "v1", "PartialObjectMetadata", kind).Replace(answer)
}

// unlistedCluster returns a cluster that answers lists of Secrets with a code, and its URL.
func unlistedCluster(t *testing.T, code int) (*wireserver.Server, string) {
	t.Helper()
	cluster := wireserver.New(wireserver.Resource{Name: "configmaps", Kind: "ConfigMap"}, wireserver.Resource{Name: "secrets", Kind: "Secret"})
	cluster.Put("namespaces", metav1.ObjectMeta{Name: "shop", UID: "shop"})
	cluster.Put("configmaps", metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "a"})
	cluster.Put("secrets", metav1.ObjectMeta{Namespace: "shop", Name: "s", UID: "s"})
	server := httptest.NewServer(unlisted{Handler: cluster, code: code})
	t.Cleanup(server.Close)
	return cluster, server.URL
}

// A backup is incomplete if a resource cannot be read of which the deletion may remove objects: then the preview fails,
// and coppice delete deletes nothing.
func TestIncompleteBackupDeletesNothing(t *testing.T) {
	for _, target := range []string{"configmaps/a", "namespaces/shop"} {
		for _, code := range []int{http.StatusForbidden, http.StatusInternalServerError, http.StatusOK} {
			t.Run(fmt.Sprintf("%s, %d", target, code), func(t *testing.T) {
				home := atHome(t)
				cluster, url := unlistedCluster(t, code)
				args := []string{"delete", target, "-n", "shop", "--server", url, "--backup-key", filepath.Join(home, "key")}
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

// --backup-without accepts the named resources if they cannot be read, and "forbidden" those that the user may not list. The
// output, the backup and its undo say what may be missing. The error names the flag that accepts the rest.
func TestAcceptedLackOfABackup(t *testing.T) {
	for name, test := range map[string]struct {
		code    int // of a list of Secrets
		without string
		want    string // in the error, the flag that it names; empty if the object is deleted
		isWhole bool
	}{
		"forbidden":                   {code: http.StatusForbidden, want: "--backup-without=forbidden;"},
		"forbidden, accepted":         {code: http.StatusForbidden, without: "forbidden"},
		"forbidden, accepted by name": {code: http.StatusForbidden, without: "configmaps,secrets"},
		"forbidden, another is":       {code: http.StatusForbidden, without: "configmaps", want: "--backup-without=configmaps,forbidden;"},
		"an outage":                   {code: http.StatusInternalServerError, want: "--backup-without=secrets;"},
		"an outage, accepted by name": {code: http.StatusInternalServerError, without: "secrets"},
		"an outage is not forbidden":  {code: http.StatusInternalServerError, without: "forbidden", want: "--backup-without=forbidden,secrets;"},
		"nothing is missing":          {code: http.StatusOK, without: "forbidden,secrets", isWhole: true},
	} {
		t.Run(name, func(t *testing.T) {
			home := atHome(t)
			cluster, url := unlistedCluster(t, test.code)
			file, key := filepath.Join(home, "it.backup"), filepath.Join(home, "key")
			args := []string{"delete", "configmaps/a", "-n", "shop", "--server", url}
			var report preview.Report
			if err := json.Unmarshal([]byte(runFully(t.Context(), append([]string{"preview"}, append(args, "-o", "json")...)...).out), &report); err != nil {
				t.Fatal(err)
			}
			args = append(args, "--confirm", report.Digest, "--backup", file, "--backup-key", key)
			if test.without != "" {
				args = append(args, "--backup-without", test.without)
			}
			deleted := runFully(t.Context(), args...)
			if isThere := slices.Contains(cluster.UIDs("configmaps"), "a"); isThere != (test.want != "") || isThere != (deleted.code != ExitOK) || !strings.Contains(deleted.err, test.want) {
				t.Errorf("the object exists: %t, exit code %d, want %q\n%s", isThere, deleted.code, test.want, deleted.err)
			}
			if isSaid := strings.Contains(deleted.err, "may not be kept, as --backup-without says: secrets in namespace shop: "); isSaid != (test.want == "" && !test.isWhole) {
				t.Errorf("the command says that Secrets may be missing: %t\n%s", isSaid, deleted.err)
			}
			for _, format := range []string{"text", "json", "name"} {
				undone := runFully(t.Context(), "undo", file, "--dry-run", "-o", format, "--server", url, "--backup-key", key)
				isSaid := strings.Contains(undone.out+undone.err, "secrets in namespace shop: ") && (format == "json" || strings.Contains(undone.out+undone.err, "The backup is incomplete, and may lack"))
				if isSaid == test.isWhole {
					t.Errorf("undo -o %s says that the backup is incomplete: %t\n%s%s", format, isSaid, undone.out, undone.err)
				}
			}
		})
	}
}

// vanishing is a server on which the ConfigMap a vanishes when its content is read.
type vanishing struct{ *wireserver.Server }

func (v vanishing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/configmaps/a") && !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
		v.Remove("configmaps", "a")
	}
	v.Server.ServeHTTP(w, r)
}

// The undo of a backup without objects says what the backup lacks.
func TestBackupWithoutObjectsSaysWhatItLacks(t *testing.T) {
	for lack, want := range map[string]string{"": "has no objects", "secrets in namespace shop: no": "has no objects: it is incomplete, and may lack these and what depends on them: secrets in namespace shop: no"} {
		home := atHome(t)
		key, _, err := keyfile.LoadOrMakeKey(filepath.Join(home, "key"))
		if err != nil {
			t.Fatal(err)
		}
		var content backup.Content
		if lack != "" {
			content.Lacks = []string{lack}
		}
		text, err := backup.Seal(content, key, time.Unix(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(home, "it.backup")
		if err := backup.Write(file, text); err != nil {
			t.Fatal(err)
		}
		if _, err := readBackup(file, filepath.Join(home, "key")); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A backup lists an object that has vanished between the preview and its own read, also for a later undo.
func TestVanishedObjectIsInTheReportOfTheUndo(t *testing.T) {
	home := atHome(t)
	cluster, _ := unlistedCluster(t, http.StatusOK)
	server := httptest.NewServer(vanishing{cluster})
	t.Cleanup(server.Close)
	file, key := filepath.Join(home, "it.backup"), filepath.Join(home, "key")
	got := runFully(t.Context(), "preview", "delete", "namespaces/shop", "--server", server.URL, "--backup", file, "--backup-key", key)
	if got.code != ExitFailed || !strings.Contains(got.err, "1 object is not in the backup") {
		t.Fatalf("exit code %d\n%s%s", got.code, got.out, got.err)
	}
	undone := runFully(t.Context(), "undo", file, "--dry-run", "-o", "json", "--server", server.URL, "--backup-key", key)
	var report undo.Report
	if err := json.Unmarshal([]byte(undone.out), &report); err != nil {
		t.Fatalf("%v\n%s%s", err, undone.out, undone.err)
	}
	if len(report.Lacks) != 1 || report.Lacks[0] != "configmaps shop/a: it is gone since it was previewed" {
		t.Errorf("the backup lacks %q", report.Lacks)
	}
}

// The flag is for backups. Its errors name many resources briefly, and outages one by one.
func TestAcceptedLackIsChecked(t *testing.T) {
	for line, want := range map[string]string{
		"preview delete cm/a --backup-without=forbidden":           "--backup-without is for --backup",
		"delete cm/a --confirm=x --backup-without=forbidden":       "--backup-without is for --backup",
		"delete cm/a --confirm=x --backup=x --backup-without=a,,b": "has an empty name",
		"mcp --backup-without=forbidden":                           "--backup-without is for --allow-delete",
		"mcp --allow-delete --backup-without=forbidden":            "--backup-without is for --backup-dir",
	} {
		if got := run(t, strings.Fields(line)...); got.code != ExitUsage || !strings.Contains(got.err, want) {
			t.Errorf("%s: exit code %d, %s", line, got.code, got.err)
		}
	}
	var unseen []preview.UnseenReport
	for n := range 50 {
		unseen = append(unseen, preview.UnseenReport{Resource: fmt.Sprintf("r%d", n), Forbidden: n > 1, Says: fmt.Sprintf("r%d: no", n)})
	}
	err := acceptedLack{"r9"}.errOpen(unseen)
	unaccepted := acceptedLack{"r0"}.errOpen([]preview.UnseenReport{{Resource: "r1", Says: "r1: no"}, {Says: "and 7 more"}})
	if unaccepted == nil || !strings.Contains(unaccepted.Error(), "r1: no; and 7 more; ") || !strings.Contains(unaccepted.Error(), "--backup-without cannot accept") || strings.Contains(unaccepted.Error(), "--backup-without=") {
		t.Error(unaccepted)
	}
	if err == nil || !strings.Contains(err.Error(), "r4: no; and 45 more; ") || !strings.Contains(err.Error(), "--backup-without=r9,r0,r1,forbidden;") {
		t.Error(err)
	}
}
