package main

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	assets "github.com/coppice-dev/coppice/release/internal/envtest"
)

// setupEnvtest builds upstream's command and returns its path.
func setupEnvtest(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "setup-envtest.exe") // the name is for Windows, and no hindrance elsewhere
	if out, err := exec.Command("go", "build", "-o", path, "sigs.k8s.io/controller-runtime/tools/setup-envtest").CombinedOutput(); err != nil {
		t.Fatalf("build setup-envtest: %v: %s", err, out)
	}
	return path
}

func indexURL() string { return made.server.URL + "/" + assets.IndexName }

// checkRoles checks that a directory has the three programs, and that each is Coppice by that name.
func checkRoles(t *testing.T, dir string) {
	t.Helper()
	for _, role := range []string{"kube-apiserver", "etcd", "kubectl"} {
		out, err := exec.Command(filepath.Join(dir, here(t).Program(role)), "--data-dir", "with space").Output()
		if want := role + " --data-dir with space\n"; err != nil || string(out) != want {
			t.Errorf("%s says %q, want %q: %v", role, out, want, err)
		}
	}
}

// TestSetupEnvtest: upstream's own command finds, downloads, verifies and unpacks our archives; and
// with an archive that was carried to it, it needs no network.
func TestSetupEnvtest(t *testing.T) {
	command, here := setupEnvtest(t), here(t)
	version := strings.TrimPrefix(testKubernetes, "v")
	archive := read(t, filepath.Join(made.dir, assets.ArchiveName(testKubernetes, here)))
	for name, run := range map[string]struct {
		args  []string
		input string
	}{
		"newest":   {args: []string{"use", "--index", indexURL()}},
		"version":  {args: []string{"use", "1.37.x", "--index", indexURL()}},
		"air gap":  {args: []string{"sideload", version}, input: archive},
		"platform": {args: []string{"use", version, "--index", indexURL(), "--os", here.OS, "--arch", here.Arch}},
	} {
		t.Run(name, func(t *testing.T) {
			store := t.TempDir()
			use := func(input string, args ...string) string {
				t.Helper()
				c := exec.Command(command, append(args, "--bin-dir", store, "--print", "path")...)
				c.Stdin = strings.NewReader(input)
				c.Env = append(os.Environ(), "HTTP_PROXY=http://127.0.0.1:1", "NO_PROXY=127.0.0.1")
				var said bytes.Buffer
				c.Stderr = &said
				out, err := c.Output()
				if err != nil {
					t.Fatalf("%v: %v: %s", c.Args, err, said.Bytes())
				}
				return strings.TrimSpace(string(out))
			}
			checkRoles(t, use(run.input, run.args...))
			checkRoles(t, use("", "use", "--installed-only", version))
		})
	}
}

// TestSetupEnvtestVerifies: an archive that does not match the index is refused.
func TestSetupEnvtestVerifies(t *testing.T) {
	wrong := filepath.Join(made.dir, here(t).Archive(testVersion))
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, wrong) }))
	defer other.Close()
	index := filepath.Join(t.TempDir(), assets.IndexName)
	text := strings.ReplaceAll(read(t, filepath.Join(made.dir, assets.IndexName)), made.server.URL, other.URL)
	if err := os.WriteFile(index, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	served := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(index))))
	defer served.Close()
	out, err := exec.Command(setupEnvtest(t), "use", "--index", served.URL+"/"+assets.IndexName, "--bin-dir", t.TempDir()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "checksum mismatch") {
		t.Errorf("got %v and %q, want a refusal", err, out)
	}
}

// TestEnvtestDownloads: envtest, told of our index, downloads the programs and starts them. The small
// program ends at once instead of serving, which envtest says.
func TestEnvtestDownloads(t *testing.T) {
	dir := t.TempDir()
	environment := &envtest.Environment{
		DownloadBinaryAssets:         true,
		DownloadBinaryAssetsIndexURL: indexURL(),
		BinaryAssetsDirectory:        dir,
		ControlPlaneStartTimeout:     10 * time.Second,
	}
	t.Setenv("KUBEBUILDER_ASSETS", "")
	_, err := environment.Start()
	if err == nil {
		err = errors.Join(errors.New("a control plane has started"), environment.Stop())
	}
	if !strings.Contains(err.Error(), "etcd") {
		t.Errorf("got %v, want an error about etcd", err)
	}
	here := here(t)
	checkRoles(t, filepath.Join(dir, strings.TrimPrefix(testKubernetes, "v")+"-"+here.OS+"-"+here.Arch))
}
