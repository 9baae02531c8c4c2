package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/testing/freeport"
)

// TestSnapshotAndRestore restores an earlier state of a running control plane, with an external
// collector that has observed the undone writes: the owner was deleted, and its dependent
// collected. Both come back, and the collector does not delete the dependent (H4, R4).
func TestSnapshotAndRestore(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), freeport.Find(t)
	p := startPlane(t, "--data-dir", dir, "--secure-port="+port, "--controllers=namespace")
	k := ourKubectl(p)
	k.apply(t, "default", configMap("owner", ""))
	uid := uidOf(t, k, "default", "configmap/owner")
	k.apply(t, "default", configMap("dependent", ownerOf("v1", "ConfigMap", "owner", uid, true)))
	c := startCollector(t, p)
	c.waitSynced(t)

	file := filepath.Join(t.TempDir(), "snapshot")
	if out, errs, code := coppice(t, "snapshot", "save", file, "--data-dir", dir); code != 0 || out != "saved "+file+"\n" {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the snapshot: %v %v", info, err)
	}
	k.run(t, "delete", "-n", "default", "configmap", "owner")
	k.eventuallyNames(t, "default", "configmaps")
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}

	restored := filepath.Join(t.TempDir(), "restored")
	if err := os.CopyFS(filepath.Join(restored, "pki"), os.DirFS(filepath.Join(dir, "pki"))); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := coppice(t, "snapshot", "restore", file, "--data-dir", restored); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	p = startPlane(t, "--data-dir", restored, "--secure-port="+port, "--controllers=namespace")
	k.plane.kubeconfig = p.kubeconfig
	if got := uidOf(t, k, "default", "configmap/owner"); got != uid {
		t.Errorf("the owner is another: %s, want %s", got, uid)
	}
	// When the collector has processed later objects, it has observed all of these.
	k.apply(t, "default", configMap("orphan", ownerOf("v1", "ConfigMap", "nobody", "nobody", true)))
	k.eventuallyNames(t, "default", "configmaps", "configmap/dependent", "configmap/owner")

	// A snapshot is not restored over existing data.
	_, errs, code := coppice(t, "snapshot", "restore", file, "--data-dir", dir)
	if code != 1 || !oneLine(errs) || !strings.Contains(errs, dir+" is not empty") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	c.stop(t)
}

// TestSnapshotOfStoppedPlane saves the data on disk, with everything that was acknowledged.
func TestSnapshotOfStoppedPlane(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startPlane(t, "--data-dir", dir, "--secure-port=0")
	ourKubectl(p).apply(t, "default", configMap("kept", ""))
	p.kill(t)
	file := filepath.Join(t.TempDir(), "snapshot")
	if out, errs, code := coppice(t, "snapshot", "save", file, "--data-dir", dir); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	restored := filepath.Join(t.TempDir(), "restored")
	if out, errs, code := coppice(t, "snapshot", "restore", file, "--data-dir", restored); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	p = startPlane(t, "--data-dir", restored, "--secure-port=0")
	if got := ourKubectl(p).names(t, "default", "configmaps"); !slices.Contains(got, "configmap/kept") {
		t.Errorf("restored there is %v", got)
	}
	// A damaged file is refused, and leaves nothing.
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	third := filepath.Join(t.TempDir(), "third")
	_, errs, code := coppice(t, "snapshot", "restore", file, "--data-dir", third)
	if code != 1 || !oneLine(errs) || !strings.Contains(errs, file) || !strings.Contains(errs, "checksum") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if _, err := os.Stat(filepath.Join(third, "etcd")); !os.IsNotExist(err) {
		t.Errorf("something was restored: %v", err)
	}
}

// TestSnapshotIsForAdministrators asks for a snapshot without a credential.
func TestSnapshotIsForAdministrators(t *testing.T) {
	p := sharedPlane(t)
	if code, body := curl(t, "--cacert", p.credentials(t).authority, p.server+"/coppice/snapshot"); code != "401" {
		t.Errorf("without a credential: %s %s", code, body)
	}
	if code, body := p.curl(t, "-X", "POST", p.server+"/coppice/snapshot"); code != "405" {
		t.Errorf("a POST: %s %s", code, body)
	}
}

// TestFullStore uses up the quota: writes are refused with a reason. The store starts
// nevertheless, and accepts writes again once objects were deleted, without further action.
func TestFullStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	arguments := []string{"--data-dir", dir, "--secure-port=0", "--quota-backend-bytes=8388608"}
	p := startPlane(t, arguments...)
	k := ourKubectl(p)
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, []byte(strings.Repeat("x", 900_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	var names []string
	refused := ""
	for i := 0; refused == "" && i < 20; i++ {
		name := fmt.Sprint("large-", i)
		if _, errs, err := k.try(t, "", "create", "-n", "default", "configmap", name, "--from-file="+large); err != nil {
			refused = errs
		} else {
			names = append(names, name)
		}
	}
	if !strings.Contains(refused, "etcd is full") {
		t.Fatalf("after %d objects: %s", len(names), refused)
	}
	p.kill(t)
	p = startPlane(t, arguments...)
	k = ourKubectl(p)
	for _, name := range names {
		k.run(t, "delete", "-n", "default", "configmap", name)
	}
	eventually.Agrees(t, func() string {
		_, errs, err := k.try(t, "", "create", "-n", "default", "configmap", "more", "--from-file="+large)
		if err != nil {
			return errs
		}
		return ""
	})
}

// TestSnapshotOfAnEtcdCluster moves the data of a control plane from an etcd cluster into one
// with an etcd of its own: everything that was acknowledged before, under its UIDs, and nothing
// that came after. The cluster no longer exists.
func TestSnapshotOfAnEtcdCluster(t *testing.T) {
	t.Parallel()
	members := startEtcd(t, 1)
	dir := t.TempDir()
	p := startPlane(t, "--data-dir", dir, "--secure-port=0", "--etcd-servers", urlsOf(members), byHand, noNodes)
	k := ourKubectl(p)
	namespace := newNamespace(t, k)
	k.apply(t, namespace, configMap("owner", "")+configMap("gone", ""))
	uid := uidOf(t, k, namespace, "configmap/owner")
	k.apply(t, namespace, configMap("dependent", ownerOf("v1", "ConfigMap", "owner", uid, true)))
	k.run(t, "create", "-n", namespace, "secret", "generic", "key", "--from-literal=a=b")
	dependent := uidOf(t, k, namespace, "configmap/dependent")

	file := filepath.Join(t.TempDir(), "snapshot")
	if out, errs, code := coppice(t, "snapshot", "save", file, "--data-dir", dir); code != 0 || out != "saved "+file+"\n" {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	other := filepath.Join(t.TempDir(), "other")
	if out, errs, code := coppice(t, "snapshot", "save", other, "--kubeconfig", p.kubeconfig); code != 0 || out != "saved "+other+"\n" {
		t.Fatalf("by its kubeconfig: exit code %d: %s%s", code, out, errs)
	}
	k.run(t, "delete", "-n", namespace, "configmap", "gone")
	k.apply(t, namespace, configMap("late", ""))
	last := revisionOf(t, k)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	// Without a control plane there is no server to ask: the objects are elsewhere.
	if _, errs, code := coppice(t, "snapshot", "save", filepath.Join(t.TempDir(), "none"), "--data-dir", dir); code != 1 || !oneLine(errs) || !strings.Contains(errs, "no control plane has kept its objects in "+dir) {
		t.Errorf("of a stopped control plane: exit code %d: %s", code, errs)
	}
	for _, m := range members {
		m.kill()
	}

	restored := filepath.Join(t.TempDir(), "restored")
	if err := os.CopyFS(filepath.Join(restored, "pki"), os.DirFS(filepath.Join(dir, "pki"))); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := coppice(t, "snapshot", "restore", file, "--data-dir", restored); code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	k = ourKubectl(startPlane(t, "--data-dir", restored, "--secure-port=0", byHand, noNodes))
	k.eventuallyNames(t, namespace, "configmaps,secrets", "configmap/dependent", "configmap/gone", "configmap/owner", "secret/key")
	if got := uidOf(t, k, namespace, "configmap/owner") + " " + uidOf(t, k, namespace, "configmap/dependent"); got != uid+" "+dependent {
		t.Errorf("the UIDs are %s, and were %s %s", got, uid, dependent)
	}
	if got := k.get(t, namespace, "secret/key", "{.data.a}"); got != "Yg==" {
		t.Errorf("the secret says %q", got)
	}
	// No revision is given twice (R4), and the controllers do their work.
	if now := revisionOf(t, k); now <= last {
		t.Errorf("the revision is %d, after %d in the cluster", now, last)
	}
	k.run(t, "delete", "-n", namespace, "configmap", "owner")
	k.eventuallyNames(t, namespace, "configmaps", "configmap/gone")
	k.run(t, "delete", "namespace", namespace)
}

// revisionOf returns the current revision of a control plane.
func revisionOf(t *testing.T, k kubectl) int64 {
	t.Helper()
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal([]byte(k.run(t, "get", "--raw", "/api/v1/namespaces")), &list); err != nil {
		t.Fatal(err)
	}
	revision, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}
