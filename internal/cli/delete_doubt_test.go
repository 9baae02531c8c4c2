package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// lateServer is an unusedServer that answers each DELETE of the widget a with 504. The first one takes effect later, at the first
// request for which isLate is true. The dependent b goes after half a minute.
type lateServer struct {
	*unusedServer

	isLate func(r *http.Request) bool
	effect func()
	late   time.Time // of the effect
}

func newLateServer() *lateServer {
	s := &lateServer{unusedServer: newUnusedServer(), effect: func() {}}
	s.Put("widgets", metav1.ObjectMeta{Namespace: "shop", Name: "b", UID: "b", OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Widget", Name: "a", UID: "a"}}})
	s.putOff = func(_ int, w http.ResponseWriter) bool {
		http.Error(w, "the server is too slow", http.StatusGatewayTimeout)
		return true
	}
	s.seen = func(r *http.Request) {
		if len(s.deletes) == 0 || !s.late.IsZero() || !s.isLate(r) {
			return
		}
		s.late = time.Now()
		s.Remove("widgets", "a")
		s.effect()
		time.AfterFunc(30*time.Second, func() { s.Remove("widgets", "b") })
	}
	return s
}

// readsA reports whether a request reads the metadata of the widget a.
func readsA(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/widgets/a") && !isContent(r)
}

// A DELETE that the server completes after its 504 has deleted the object, wherever the command is then: it waits for the
// dependents, never says that nothing is deleted, and keeps the backup, which has everything.
func TestDeletionTakesEffectAfterItsAnswer(t *testing.T) {
	nth := func(n int, is func(*http.Request) bool) func(*http.Request) bool {
		return func(r *http.Request) bool {
			if is(r) {
				n--
			}
			return n == 0
		}
	}
	anything := func(*http.Request) bool { return true }
	for name, test := range map[string]struct {
		isLate   func(*http.Request) bool
		replaced bool // by an object without the label
		without  bool // a backup
	}{
		"before the next look":                         {isLate: anything},
		"before the next look, and it is replaced":     {isLate: anything, replaced: true},
		"after the look":                               {isLate: nth(2, readsA)},
		"after the look, and it is replaced":           {isLate: nth(2, readsA), replaced: true},
		"while it is previewed":                        {isLate: nth(3, readsA)},
		"while it is previewed, and it is replaced":    {isLate: nth(3, readsA), replaced: true},
		"while the backup is read":                     {isLate: isContent},
		"while the backup is read, and it is replaced": {isLate: isContent, replaced: true},
		"at the second DELETE":                         {isLate: func(r *http.Request) bool { return r.Method == http.MethodDelete }},
		"at the second DELETE, without a backup":       {isLate: func(r *http.Request) bool { return r.Method == http.MethodDelete }, without: true},
	} {
		t.Run(name, func(t *testing.T) {
			home := atHome(t)
			synctest.Test(t, func(t *testing.T) {
				s := newLateServer()
				s.isLate = test.isLate
				if test.replaced {
					s.effect = func() { s.Put("widgets", metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "new"}) }
				}
				flags := []string{"--max", "2"}
				file, key := filepath.Join(home, "it.backup"), filepath.Join(home, "key")
				if !test.without {
					flags = append(flags, "--backup", file, "--backup-key", key)
				}
				got, err := deleteUnusedWith(t.Context(), t, s, deleteFlags{}, flags...)
				if err != nil || !strings.Contains(got.out, "widgets.example.com/a is gone") || strings.Contains(got.err, "nothing is deleted") {
					t.Errorf("%v\n%s%s", err, got.out, got.err)
				}
				if s.late.IsZero() || time.Since(s.late) < 30*time.Second {
					t.Errorf("the DELETE takes effect at %s, and the command ends at %s", s.late, time.Now())
				}
				if !test.without {
					expectBackup(t, file, key, "a", "b")
				}
			})
		})
	}
}

// A DELETE in doubt may have begun to delete dependents, as the collector does before the owner goes: the next attempt keeps
// them in the backup.
func TestDependentsOfADeletionInDoubtStayInTheBackup(t *testing.T) {
	for name, test := range map[string]struct {
		code int
		want []string
	}{
		"in doubt": {http.StatusGatewayTimeout, []string{"a", "b"}},
		"busy":     {http.StatusTooManyRequests, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			home := atHome(t)
			synctest.Test(t, func(t *testing.T) {
				s := newLateServer()
				s.isLate = func(*http.Request) bool { return false }
				s.putOff = func(nth int, w http.ResponseWriter) bool {
					if nth > 1 {
						return false
					}
					s.Remove("widgets", "b")
					http.Error(w, "not now", test.code)
					return true
				}
				file, key := filepath.Join(home, "it.backup"), filepath.Join(home, "key")
				got, err := deleteUnusedWith(t.Context(), t, s, deleteFlags{}, "--max", "2", "--backup", file, "--backup-key", key)
				if err != nil || len(s.deletes) != 2 {
					t.Errorf("%d requests, %v\n%s%s", len(s.deletes), err, got.out, got.err)
				}
				expectBackup(t, file, key, test.want...)
			})
		})
	}
}

// expectBackup checks the names of the objects in a backup.
func expectBackup(t *testing.T, file, key string, want ...string) {
	t.Helper()
	content, err := readBackup(file, key)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, kept := range content.Kept {
		names = append(names, kept.Object.GetName())
	}
	if slices.Sort(names); !slices.Equal(names, want) {
		t.Errorf("the backup has %q, want %q", names, want)
	}
	others, err := os.ReadDir(filepath.Dir(file))
	if err != nil || slices.ContainsFunc(others, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), ".it.backup") }) {
		t.Errorf("beside the backup: %v, %v", others, err)
	}
}

// Ctrl-C after a DELETE in doubt finds out whether the object is deleted.
func TestInterruptedDeletionInDoubtIsSettled(t *testing.T) {
	for name, isDeleted := range map[string]bool{"deleted": true, "not deleted": false} {
		t.Run(name, func(t *testing.T) {
			atHome(t)
			synctest.Test(t, func(t *testing.T) {
				ctx, interrupt := context.WithCancel(t.Context())
				defer interrupt()
				s := newLateServer()
				s.isLate = func(r *http.Request) bool {
					isFirst := ctx.Err() == nil
					interrupt()
					return isDeleted && isFirst && r.Method == http.MethodGet
				}
				got, err := deleteUnusedWith(ctx, t, s, deleteFlags{}, "--max", "2")
				want := errUnanswered.Error()
				if isDeleted {
					want = "interrupted, objects left: "
				}
				if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "nothing is deleted") || strings.Contains(got.out, "a is gone") != isDeleted {
					t.Errorf("%v\n%s%s", err, got.out, got.err)
				}
			})
		})
	}
}

// The end of the wait for another reason does not hide that the object may be deleted, nor is the reason hidden.
func TestOtherErrorAfterADoubtIsNoProof(t *testing.T) {
	atHome(t)
	synctest.Test(t, func(t *testing.T) {
		s := newLateServer()
		s.isLate = func(*http.Request) bool { return false }
		s.putOff = func(_ int, w http.ResponseWriter) bool {
			s.Put("widgets", metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "a"}) // without the label
			http.Error(w, "the server is too slow", http.StatusGatewayTimeout)
			return true
		}
		got, err := deleteUnusedWith(t.Context(), t, s, deleteFlags{}, "--max", "2")
		if err == nil || !strings.Contains(err.Error(), errUnanswered.Error()) || !strings.Contains(err.Error(), "is no longer protected in mode unused") || strings.Contains(err.Error(), "nothing is deleted") {
			t.Errorf("%v\n%s%s", err, got.out, got.err)
		}
	})
}

// An object that is there long after a DELETE in doubt was not deleted by it: then the command says so.
func TestOldDoubtEnds(t *testing.T) {
	atHome(t)
	synctest.Test(t, func(t *testing.T) {
		s := newUnusedServer()
		s.putOff = func(nth int, w http.ResponseWriter) bool {
			if nth == 1 {
				http.Error(w, "the server is too slow", http.StatusGatewayTimeout)
				return true
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, statusText(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, 20))
			return true
		}
		for timeout, want := range map[time.Duration]string{time.Minute: errUnanswered.Error(), 10 * time.Minute: "timed out after 10m0s: nothing is deleted"} {
			s.deletes = nil
			if got, err := deleteUnused(t, s, timeout); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("after %s: %v\n%s%s", timeout, err, got.out, got.err)
			}
			s.Put("widgets", metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "a", Labels: map[string]string{protection.Label: string(protection.Unused)}})
		}
	})
}

// backedUp returns the flags of a command that writes a backup, and accepts that it lacks resources which the user may not list.
func backedUp(home string, server http.Handler) previewFlags {
	f := previewFlags{cluster: clusterFlags{kube: kubeFlags(&cobra.Command{})}, cascade: "background"}
	*f.cluster.kube.APIServer = "http://server"
	f.cluster.kube.WrapConfigFn = func(config *rest.Config) *rest.Config {
		config.Transport = inBubble{server}
		return config
	}
	f.backup = backupFlags{file: filepath.Join(home, "it.backup"), key: filepath.Join(home, "key"), without: acceptedLack{forbiddenResources}}
	return f
}

// A command replaces the backup of its last attempt only if the new one lacks nothing that the DELETE of the last attempt may
// have removed.
func TestBackupIsReplacedByAWholeOne(t *testing.T) {
	for name, test := range map[string]struct {
		vanishes  bool // the Secret s, before the second preview
		unread    bool // after the second preview
		forbidden bool // to list Secrets in the second preview, which the user accepts
		isNeeded  bool
		want      []string
		fails     bool
	}{
		"nothing has changed":              {want: []string{"a", "s", "shop"}},
		"an object is gone":                {vanishes: true, want: []string{"a", "shop"}},
		"it may be gone by the DELETE":     {vanishes: true, isNeeded: true, want: []string{"a", "s", "shop"}},
		"an object is not read":            {unread: true, want: []string{"a", "s", "shop"}, fails: true},
		"it is not read after a doubt":     {unread: true, isNeeded: true, want: []string{"a", "s", "shop"}, fails: true},
		"a resource is accepted as unread": {forbidden: true, want: []string{"a", "s", "shop"}},
	} {
		t.Run(name, func(t *testing.T) {
			home := atHome(t)
			cluster, _ := unlistedCluster(t, http.StatusOK)
			handler := &unlisted{Handler: cluster, code: http.StatusOK}
			f := backedUp(home, handler)
			args := []string{"namespaces/shop"}
			var out, errs bytes.Buffer
			s := Streams{Out: &out, Err: &errs}
			attempt := func(before func()) error {
				predicted, err := f.predict(t.Context(), args, s)
				if err != nil {
					t.Fatal(err)
				}
				before()
				return f.keep(t.Context(), predicted.report, args, s)
			}
			if err := attempt(func() {}); err != nil {
				t.Fatalf("%v\n%s", err, errs.String())
			}
			if test.vanishes {
				cluster.Remove("secrets", "s")
			}
			if test.forbidden {
				handler.code = http.StatusForbidden
			}
			f.backup.isNeeded = test.isNeeded
			before, err := os.ReadFile(f.backup.file)
			if err != nil {
				t.Fatal(err)
			}
			err = attempt(func() {
				if test.unread {
					cluster.Remove("secrets", "s")
				}
			})
			if (err != nil) != test.fails || err != nil && !strings.Contains(err.Error(), "1 object is not in the backup") {
				t.Errorf("%v\n%s", err, errs.String())
			}
			after, err := os.ReadFile(f.backup.file)
			if isSame := bytes.Equal(before, after); err != nil || isSame != test.fails {
				t.Errorf("the backup stays: %t, %v", isSame, err)
			}
			expectBackup(t, f.backup.file, f.backup.key, test.want...)
		})
	}
}
