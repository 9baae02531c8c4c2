package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// An invalid command line is rejected with one line, before any request.
func TestNodeFlags(t *testing.T) {
	atHome(t)
	t.Setenv("KUBECONFIG", "")
	for line, want := range map[string]struct {
		code int
		says string
	}{
		"node more":                  {ExitUsage, "takes no arguments"},
		"node --node-ip here":        {ExitUsage, `--node-ip "here" is not the IP address of a node`},
		"node --node-ip ::":          {ExitUsage, `--node-ip "::" is not the IP address of a node`},
		"node --bind-address here":   {ExitUsage, `--bind-address "here" is not an IP address`},
		"node --bind-address ::":     {ExitUsage, `--bind-address :: means all addresses of the machine: set the address of the node with --node-ip`},
		"node --port 65536":          {ExitUsage, "--port 65536 is not between 0 and 65535"},
		"node --runtime docker":      {ExitUsage, `--runtime docker: choose simulated or cri`},
		"node --lease-duration 10ms": {ExitUsage, "--lease-duration 10ms is less than 1s"},
		"node --name A_b":            {ExitUsage, `--name "A_b" cannot be the name of a node`},
		"node --log-level loud":      {ExitUsage, "--log-level"},
		"node":                       {ExitFailed, "no API server is named"},
		"node --kubeconfig " + filepath.Join("no", "file"): {ExitFailed, "no such file"},
	} {
		var out, errs bytes.Buffer
		code := Run(t.Context(), strings.Fields(line), Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		if code != want.code || !strings.Contains(errs.String(), want.says) || strings.Count(errs.String(), "\n") != 1 || out.Len() > 0 {
			t.Errorf("coppice %s: exit code %d, %q; want %d and a line that says %q", line, code, errs.String(), want.code, want.says)
		}
	}
}

// Without flags, logs are served only on loopback, and the address of a node is the address on which it
// serves.
func TestNodeAddresses(t *testing.T) {
	for line, want := range map[string][2]string{
		"":                         {"127.0.0.1", "127.0.0.1"},
		"--node-ip 192.0.2.7":      {"127.0.0.1", "192.0.2.7"},
		"--bind-address 192.0.2.7": {"192.0.2.7", "192.0.2.7"},
		"--bind-address 0.0.0.0 --node-ip 192.0.2.7": {"0.0.0.0", "192.0.2.7"},
		"--bind-address ::1 --node-ip 127.0.0.1":     {"::1", "127.0.0.1"},
	} {
		c := newNode(Streams{})
		if err := c.ParseFlags(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
		f := nodeFlags{bind: c.Flag("bind-address").Value.String(), address: c.Flag("node-ip").Value.String()}
		bind, node, err := f.addresses()
		if got := [2]string{bind.String(), node.String()}; err != nil || got != want {
			t.Errorf("coppice node %s: serves on and is at %v, %v; want %v", line, got, err, want)
		}
	}
}
