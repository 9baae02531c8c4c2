// Package envtest starts control planes as suites of operators do, by controller-runtime's envtest,
// from the assets of coppice: these tests refer to coppice only in the environment variable with
// their directory, and in the path of kube-apiserver in the directory of coppice assets --collect.
package envtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// patience is how long a test waits for what must happen, as in the other packages (internal/testing/eventually).
const patience = 3 * time.Minute

var kills = flag.Int("kills", 3, "how many test processes with a control plane are killed")

func TestMain(m *testing.M) {
	flag.Parse()
	ctrllog.SetLogger(logr.Discard())
	if os.Getenv(victimVariable) != "" {
		os.Exit(victim())
	}
	// A control plane may take as long; envtest's default is 20 s. Test processes that are killed inherit this.
	for _, name := range []string{"START", "STOP"} {
		if err := os.Setenv("KUBEBUILDER_CONTROLPLANE_"+name+"_TIMEOUT", patience.String()); err != nil {
			log.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp("", "coppice-envtest-*")
	if err != nil {
		log.Fatal(err)
	}
	code := 1
	if err := makeAssets(dir); err != nil {
		log.Print(err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// oldest is the oldest minor of Kubernetes that the binary serves.
const oldest = "1.34"

// collectingAssets and oldestAssets are the directories of the assets with a garbage collector, the second one of those that
// serve the oldest minor. TestMain sets them.
var collectingAssets, oldestAssets string

// collecting returns an environment in which owned objects, and the contents of namespaces, are deleted.
func collecting() *envtest.Environment { return from(collectingAssets) }

// from returns an environment whose kube-apiserver is in a directory of assets.
func from(assets string) *envtest.Environment {
	environment := &envtest.Environment{}
	environment.ControlPlane.GetAPIServer().Path = filepath.Join(assets, "kube-apiserver")
	return environment
}

// makeAssets builds coppice, unless COPPICE_BIN names one, makes its assets, without a collector and with
// one, and sets KUBEBUILDER_ASSETS to the former.
func makeAssets(dir string) error {
	binary := os.Getenv("COPPICE_BIN")
	if binary == "" {
		binary = filepath.Join(dir, "coppice")
		build := exec.Command("go", "build", "-o", binary, "./cmd/coppice")
		build.Dir, build.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
		if output, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build coppice: %w\n%s", err, output)
		}
	}
	made := func(arguments ...string) (string, error) {
		output, err := exec.Command(binary, append([]string{"assets"}, arguments...)...).Output()
		if err != nil {
			return "", fmt.Errorf("make the assets: %w", err)
		}
		return strings.TrimSpace(string(output)), nil
	}
	plain, err := made("--dir", filepath.Join(dir, "assets"))
	if err != nil {
		return err
	}
	if collectingAssets, err = made("--collect", "--dir", filepath.Join(dir, "collecting")); err != nil {
		return err
	}
	if oldestAssets, err = made("--collect", "--kubernetes", oldest, "--dir", filepath.Join(dir, "oldest")); err != nil {
		return err
	}
	return os.Setenv("KUBEBUILDER_ASSETS", plain)
}

// start starts an environment that stops when the test ends.
func start(t *testing.T, environment *envtest.Environment) *rest.Config {
	t.Helper()
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	return config
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// create creates objects.
func create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatalf("create %T %s: %v", object, object.GetName(), err)
		}
	}
}

// gone waits until an object is not there any more.
func gone(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	eventually(t, fmt.Sprintf("%T %s is still there", object, object.GetName()), func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
		return client.IgnoreNotFound(err) == nil && err != nil, client.IgnoreNotFound(err)
	})
}

// eventually waits until a condition is met. The failure has the last error.
func eventually(t *testing.T, failure string, met func(context.Context) (bool, error)) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		var ok bool
		ok, last = met(ctx)
		return ok && last == nil, nil
	})
	if err != nil {
		t.Fatal(failure, errors.Join(last, err))
	}
}
