package cli

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/tools/mcpserver"
)

// agentsCluster returns the cluster of agents that may delete, with backups.
func agentsCluster(url, home string) *mcpCluster {
	f := &mcpFlags{cluster: clusterFlags{kube: kubeFlags(&cobra.Command{})}}
	*f.cluster.kube.APIServer = url
	f.deletion = mcpDeletion{allowed: true, backupDir: home, backupKey: filepath.Join(home, "key")}
	return &mcpCluster{flags: f}
}

// --backup-without of coppice mcp accepts an incomplete backup of an agent, and the answers about the deletion and its undo
// say what may be missing. Without the flag, nothing is deleted.
func TestAgentsLearnOfIncompleteBackups(t *testing.T) {
	for name, without := range map[string]acceptedLack{"accepted": {forbiddenResources}, "not accepted": nil} {
		t.Run(name, func(t *testing.T) {
			home := atHome(t)
			cluster, url := unlistedCluster(t, http.StatusForbidden)
			m := agentsCluster(url, home)
			m.flags.deletion.without = without
			deletion := mcpserver.Deletion{Objects: []string{"configmaps/a"}, Namespace: "shop"}
			report, _, err := m.Preview(t.Context(), deletion)
			if err != nil {
				t.Fatal(err)
			}
			deleted, err := m.Delete(t.Context(), deletion, report.Digest)
			if without == nil {
				if err == nil || !strings.Contains(err.Error(), "nothing is deleted") || !slices.Contains(cluster.UIDs("configmaps"), types.UID("a")) {
					t.Errorf("without the flag: %+v, %v", deleted, err)
				}
				return
			}
			if err != nil || !strings.Contains(deleted.Notes, "as --backup-without says: secrets in namespace shop: ") {
				t.Fatalf("%+v, %v", deleted, err)
			}
			undone, notes, err := m.Undo(t.Context(), mcpserver.Restoration{Backup: deleted.Backup, Namespace: "shop", DryRun: true})
			if err != nil || len(undone.Lacks) == 0 || !strings.Contains(notes, "The backup is incomplete, and may lack these and what depends on them: secrets in namespace shop: ") {
				t.Errorf("%+v, %q, %v", undone, notes, err)
			}
		})
	}
}

// agentBusy puts off a write for 20 s.
func agentBusy(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", "20")
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = w.Write([]byte(statusText(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, 20)))
}

// The tool delete asks a busy server again, and answers before the client ends the call. Then the agent gets the answer of the
// server: the object is not deleted.
func TestAgentsLearnThatTheServerIsBusy(t *testing.T) {
	for name, busyFor := range map[string]int{"for a while": 1, "to the end": 100} {
		t.Run(name, func(t *testing.T) {
			home := atHome(t)
			synctest.Test(t, func(t *testing.T) {
				s := newUnusedServer()
				s.putOff = func(nth int, w http.ResponseWriter) bool {
					if nth > busyFor {
						return false
					}
					agentBusy(w)
					return true
				}
				m := agentsCluster("http://server", home)
				m.flags.deletion.backupDir = ""
				m.flags.cluster.kube.WrapConfigFn = func(config *rest.Config) *rest.Config {
					config.Transport = s
					return config
				}
				deletion := mcpserver.Deletion{Objects: []string{"widgets/a"}, Namespace: "shop"}
				report, _, err := m.Preview(t.Context(), deletion)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				deleted, err := m.Delete(t.Context(), deletion, report.Digest)
				if name == "for a while" {
					if err != nil || deleted.Lines != "widgets.example.com/a deleted\n" || time.Since(began) != 20*time.Second {
						t.Errorf("after %s: %+v, %v", time.Since(began), deleted, err)
					}
					return
				}
				if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "widgets.example.com/a is not deleted, the server is busy: not now") || time.Since(began) != 20*time.Second {
					t.Errorf("after %s: %+v, %v", time.Since(began), deleted, err)
				}
			})
		})
	}
}

// All objects of one call of the tool delete share the time that the server may be busy.
func TestAgentsWaitOnceForAllObjects(t *testing.T) {
	atHome(t)
	synctest.Test(t, func(t *testing.T) {
		s := newUnusedServer()
		s.Put("widgets", metav1.ObjectMeta{Namespace: "shop", Name: "b", UID: "b"})
		s.putOff = func(nth int, w http.ResponseWriter) bool {
			if nth%2 == 0 {
				return false // it accepts the second try of each object
			}
			agentBusy(w)
			return true
		}
		m := agentsCluster("http://server", "")
		m.flags.deletion.backupDir = ""
		m.flags.cluster.kube.WrapConfigFn = func(config *rest.Config) *rest.Config {
			config.Transport = s
			return config
		}
		deletion := mcpserver.Deletion{Objects: []string{"widgets/a", "widgets/b"}, Namespace: "shop"}
		report, _, err := m.Preview(t.Context(), deletion)
		if err != nil {
			t.Fatal(err)
		}
		deleted, err := m.Delete(t.Context(), deletion, report.Digest)
		if !apierrors.IsTooManyRequests(err) || deleted.Lines != "widgets.example.com/a deleted\n" || time.Since(s.began) > agentBusyTimeout {
			t.Errorf("after %s: %+v, %v", time.Since(s.began), deleted, err)
		}
	})
}

// The tool undo answers before the client ends the call, too.
func TestAgentsLearnThatTheServerIsBusyInAnUndo(t *testing.T) {
	home := atHome(t)
	synctest.Test(t, func(t *testing.T) {
		s := newUnusedServer()
		s.putOff = func(int, http.ResponseWriter) bool { return false }
		m := agentsCluster("http://server", home)
		m.flags.cluster.kube.WrapConfigFn = func(config *rest.Config) *rest.Config {
			config.Transport = s
			return config
		}
		deletion := mcpserver.Deletion{Objects: []string{"widgets/a"}, Namespace: "shop"}
		report, _, err := m.Preview(t.Context(), deletion)
		if err != nil {
			t.Fatal(err)
		}
		deleted, err := m.Delete(t.Context(), deletion, report.Digest)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		undone, notes, err := m.Undo(t.Context(), mcpserver.Restoration{Backup: deleted.Backup, Namespace: "shop"})
		if err != nil || undone.Missing() != 1 || !strings.Contains(undone.Objects[0].Why, "not now") || time.Since(began) != 20*time.Second {
			t.Errorf("after %s: %s%s, %v", time.Since(began), undone, notes, err)
		}
	})
}

// The agent learns that an object may be deleted although the tool has failed.
func TestAgentsLearnOfADeletionInDoubt(t *testing.T) {
	home := atHome(t)
	synctest.Test(t, func(t *testing.T) {
		s := newUnusedServer()
		s.putOff = func(_ int, w http.ResponseWriter) bool {
			http.Error(w, "no server is ready", http.StatusBadGateway)
			return true
		}
		m := agentsCluster("http://server", home)
		m.flags.cluster.kube.WrapConfigFn = func(config *rest.Config) *rest.Config {
			config.Transport = s
			return config
		}
		deletion := mcpserver.Deletion{Objects: []string{"widgets/a"}, Namespace: "shop"}
		report, _, err := m.Preview(t.Context(), deletion)
		if err != nil {
			t.Fatal(err)
		}
		if deleted, err := m.Delete(t.Context(), deletion, report.Digest); err == nil || !deleted.IsInDoubt || deleted.Backup == "" {
			t.Errorf("%+v, %v", deleted, err)
		}
		if deleted, err := m.Delete(t.Context(), deletion, "another"); err == nil || deleted.IsInDoubt {
			t.Errorf("another preview: %+v, %v", deleted, err)
		}
	})
}
