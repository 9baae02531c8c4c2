package controlplane_test

import (
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/controlplane"
)

// start runs a script of the shell in the place of coppice.
func start(t *testing.T, script string) *controlplane.Process {
	t.Helper()
	p, err := controlplane.Start("/bin/sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

const (
	// clean begins a script that ends by Ctrl-C.
	clean = "trap 'exit 0' INT; "
	// forever ends a script that goes on.
	forever = "; while :; do sleep 0.01; done"
)

func TestStartReadsWhatIsPrinted(t *testing.T) {
	p := start(t, clean+"echo export KUBECONFIG=/dir/kubeconfig; echo ready https://127.0.0.1:1 after 1 s"+forever)
	if p.Kubeconfig != "/dir/kubeconfig" || p.Server != "https://127.0.0.1:1" {
		t.Errorf("kubeconfig %q, server %q", p.Kubeconfig, p.Server)
	}
	for range 2 { // the second one finds it ended
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestStartFailsWithTheLog(t *testing.T) {
	_, err := controlplane.Start("/bin/sh", "-c", "echo no disk >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "no disk") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("%v", err)
	}
	if _, err = controlplane.Start("/bin/sh", "-c", "exit 0"); err == nil {
		t.Error("a process that ends before it is ready has started")
	}
}

func TestStopReportsAnUncleanEnd(t *testing.T) {
	p := start(t, "trap 'exit 3' INT; echo broken >&2; echo ready now"+forever)
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "broken") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("%v", err)
	}
}

func TestStopAfterKill(t *testing.T) {
	p := start(t, clean+"echo ready now"+forever)
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}
