package system

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/restriction"
	"github.com/coppice-dev/coppice/internal/apiserver/faults"
	"github.com/coppice-dev/coppice/internal/collect/auditreason"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/tools/version"
	"github.com/coppice-dev/coppice/internal/tools/web"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	eventually.SideBySide(4)
	os.Exit(m.Run())
}

// options returns the options of a control plane that keeps its data.
func options(dir string) Options {
	return Options{DataDir: dir, Log: silent(), Server: ServerOptions{ConnectionGrace: ephemeralGrace}}
}

// ephemeral returns the options of a control plane that keeps no data, and so waits for no disk.
func ephemeral(t *testing.T) Options {
	t.Helper()
	return Options{Ephemeral: true, TempDir: t.TempDir(), Log: silent()}
}

func TestServerURL(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:6443": "https://127.0.0.1:6443",
		"0.0.0.0:6443":   "https://127.0.0.1:6443",
		"[::]:6443":      "https://127.0.0.1:6443",
		"[::1]:6443":     "https://[::1]:6443",
		"192.0.2.7:1":    "https://192.0.2.7:1",
	} {
		tcp, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if got := (Options{}).serverURL(tcp); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// If the port is in use, nothing is created before the error.
func TestTakenPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	o := options(filepath.Join(t.TempDir(), "data"))
	o.Port = taken.Addr().(*net.TCPAddr).Port
	err = Run(t.Context(), o, func(Plane) { t.Error("it is ready") })
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("listen on 127.0.0.1:%d", o.Port)) || !strings.Contains(err.Error(), "--secure-port") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(o.DataDir, etcdDir)); !os.IsNotExist(err) {
		t.Errorf("the store is there: %v", err)
	}
	mustLock(t, o.DataDir) // it was released
}

func TestTakenDirectory(t *testing.T) {
	dir := t.TempDir()
	mustLock(t, dir)
	if err := Run(t.Context(), options(dir), func(Plane) { t.Error("it is ready") }); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("%v", err)
	}
}

// The zero value of the options, with a data directory, is useful.
func TestZeroOptionsAreUseful(t *testing.T) {
	for name, o := range map[string]Options{"DataDir": {DataDir: t.TempDir()}, "Ephemeral": {Ephemeral: true}} {
		t.Run(name, func(t *testing.T) {
			runWith(t, o, func(ctx context.Context, client kubernetes.Interface) error {
				reported, err := client.Discovery().ServerVersion()
				if err != nil {
					return err
				}
				if want := version.Kubernetes(); reported.GitVersion != want {
					return fmt.Errorf("it reports version %s, want %s", reported.GitVersion, want)
				}
				return work(ctx, client, 0)
			})
		})
	}
	for name, o := range map[string]Options{
		"nowhere": {},
		"plug-in": {Ephemeral: true, DisableAdmissionPlugins: []string{"NamespaceLifecycle"}},
		"faults":  {DataDir: t.TempDir(), Faults: faults.Plan{Faults: []faults.Fault{{Kind: faults.WatchLag}}}}, // they would be in kept data
	} {
		if err := Run(t.Context(), o, func(Plane) { t.Errorf("%s: it is ready", name) }); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A control plane starts, can be reached with its kubeconfig, removes namespaces and garbage, and stops;
// the objects exist when it starts again.
func TestControlPlaneCollectsStopsAndStartsAgain(t *testing.T) {
	t.Parallel()
	o := options(t.TempDir())
	o.WriteKubeconfig = filepath.Join(t.TempDir(), "config")
	for start := range 2 {
		ctx, stop := context.WithCancel(t.Context())
		ready := 0
		err := Run(ctx, o, func(p Plane) {
			ready++
			go func() {
				defer stop()
				use(t, o, p, start)
			}()
		})
		stop()
		if err != nil || ready != 1 {
			t.Fatalf("start %d: ready %d times, %v", start, ready, err)
		}
	}
	// Each controller has a user of its own.
	log, err := os.ReadFile(filepath.Join(o.DataDir, auditFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"coppice-admin", "system:coppice:collector", "system:coppice:namespace-controller", "system:coppice:protection-controller"} {
		if !strings.Contains(string(log), `"username":"`+user+`"`) {
			t.Errorf("nothing of %s in the audit log", user)
		}
	}
	isExplained(t, string(log))
	if _, err := os.Stat(filepath.Join(o.DataDir, holderFile)); !os.IsNotExist(err) {
		t.Errorf("the directory is locked: %v", err)
	}
}

// After a control plane is ready, the first request for its records succeeds.
func TestRecordsWhenReady(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	o := ephemeral(t)
	if err := Run(ctx, o, func(p Plane) {
		defer stop()
		if code, body := getAs(t, p.Config, web.Records); code != http.StatusOK {
			t.Errorf("%d %s", code, body)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// isExplained checks that the audit log contains the reason for the collection of the garbage.
func isExplained(t *testing.T, log string) {
	t.Helper()
	for line := range strings.Lines(log) {
		var e auditv1.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Verb != "delete" || e.User.Username != bootstrappolicy.Collector || e.ObjectRef.Name != "garbage" {
			continue
		}
		var reason auditreason.Reason
		if err := json.Unmarshal([]byte(e.Annotations[restriction.ReasonAnnotation]), &reason); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if reason.Policy != metav1.DeletePropagationBackground || len(reason.Owners) != 1 || !strings.HasPrefix(reason.Decision, "delete Background: owners absent: ConfigMap nobody") {
			t.Errorf("%+v", reason)
		}
		owner := reason.Owners[0]
		if owner.UID != "nobody" || owner.Standing != "dangling" || owner.Evidence != "live read" || owner.Time.IsZero() {
			t.Errorf("%+v", owner)
		}
		return
	}
	t.Errorf("the collection is not in the audit log")
}

func use(t *testing.T, o Options, p Plane, start int) {
	t.Helper()
	if p.Kubeconfig != KubeconfigPath(o.DataDir) {
		t.Errorf("kubeconfig %s", p.Kubeconfig)
	}
	for _, path := range []string{p.Kubeconfig, o.WriteKubeconfig} {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Error(err)
			return
		}
		if config.Host != p.Server {
			t.Errorf("%s names %s, want %s", path, config.Host, p.Server)
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Error(err)
			return
		}
		if err := work(t.Context(), client, start); err != nil {
			t.Errorf("start %d: %v", start, err)
			return
		}
		start = -1 // with the second file, work only checks
	}
}

// work creates objects that stay, finds them after a restart, and checks that the controllers work.
func work(ctx context.Context, client kubernetes.Interface, start int) error {
	configMaps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	if start != 0 {
		_, err := configMaps.Get(ctx, "kept", metav1.GetOptions{})
		return err
	}
	if _, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	garbage := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "garbage", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "nobody", UID: "nobody"},
	}}}
	if _, err := configMaps.Create(ctx, garbage, metav1.CreateOptions{}); err != nil {
		return err
	}
	namespaces := client.CoreV1().Namespaces()
	if _, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := namespaces.Delete(ctx, "team", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return gone(ctx, func() error {
		_, err := configMaps.Get(ctx, "garbage", metav1.GetOptions{})
		return err
	}, func() error {
		_, err := namespaces.Get(ctx, "team", metav1.GetOptions{})
		return err
	})
}

// gone waits until all gets return NotFound.
func gone(ctx context.Context, gets ...func() error) error {
	for i, get := range gets {
		err := becomesTrue(ctx, fmt.Sprintf("object %d is gone", i), func(context.Context) (bool, error) {
			err := get()
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
