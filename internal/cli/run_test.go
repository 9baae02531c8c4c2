package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// ran is the result of a command line.
type ran struct {
	code     int
	out, err string
}

// run runs a command line that must not start anything.
func run(t *testing.T, args ...string) ran {
	t.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // if a server starts by mistake, it stops at once
	code := Run(ctx, args, Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	return ran{code, out.String(), errs.String()}
}

// atHome gives the test its own home directory, and unsets the environment variables of commands.
func atHome(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("KUBECONFIG", "")
	t.Setenv(dataDirVariable, "")
	return home
}

func TestExitCodes(t *testing.T) {
	home := atHome(t)
	for _, test := range []struct {
		line string
		code int
		says string // on stderr, or on stdout if the code is 0
	}{
		{"", ExitOK, "coppice up"},
		{"--help", ExitOK, "Usage:"},
		{"help up", ExitOK, "--secure-port"},
		{"up --help", ExitOK, "--secure-port"},
		{"down", ExitUsage, `unknown command "down"; see coppice --help`},
		{"--bogus", ExitUsage, "unknown flag: --bogus; see coppice --help"},
		{"version extra", ExitUsage, `coppice version takes no arguments, got "extra"`},
		{"version -o xml", ExitUsage, `-o "xml": choose json or yaml`},
		{"version --output", ExitUsage, "flag needs an argument"},
		{"up extra", ExitUsage, `coppice up takes no arguments, got "extra"; see coppice up --help`},
		{"up --bogus", ExitUsage, "unknown flag: --bogus; see coppice up --help"},
		{"up --secure-port=many", ExitUsage, `invalid argument "many"`},
		{"up --secure-port=65536", ExitUsage, "--secure-port 65536 is not between 0 and 65535"},
		{"up --secure-port=-1", ExitUsage, "--secure-port -1 is not between 0 and 65535"},
		{"up --bind-address=localhost", ExitUsage, `--bind-address "localhost" is not an IP address`},
		{"up --log-level=loud", ExitUsage, `--log-level "loud": choose debug, info, warn or error`},
		{"up --ephemeral --data-dir=/somewhere", ExitUsage, "choose one"},
		{"up --etcd-servers=10.0.0.1:2379", ExitUsage, `"10.0.0.1:2379" is not a URL`},
		{"up --etcd-servers=http://10.0.0.1:2379 --ephemeral", ExitUsage, "choose one"},
		{"up --etcd-servers=https://10.0.0.1:2379 --etcd-certfile=c", ExitUsage, "go together"},
		{"up --quota-backend-bytes=1000", ExitUsage, "--quota-backend-bytes 1000 is less than"},
		{"up --etcd-cafile=ca", ExitUsage, "need --etcd-servers"},
		{"snapshot --help", ExitOK, "restore"},
		{"snapshot save", ExitUsage, "takes the name of one file; see coppice snapshot save --help"},
		{"snapshot save file --data-dir=/somewhere --kubeconfig=/somewhere", ExitUsage, "choose one"},
		{"snapshot save file", ExitFailed, "no control plane has kept its objects in " + home},
		{"snapshot restore file", ExitUsage, "--data-dir must name"},
		{"snapshot restore /nowhere/file --data-dir=" + home + "/restored", ExitFailed, "open the snapshot: open /nowhere/file"},
		{"up --data-dir=/dev/null", ExitFailed, "data directory"},
		{"collect --protect-address=:10272", ExitUsage, "--protect-address needs --protect-cert-file and --protect-key-file"},
		{"collect --protect-address=10272 --protect-cert-file=c --protect-key-file=k", ExitUsage, "is not an address with a port"},
		{"collect --protect-address=:10272 --protect-cert-file=c --protect-key-file=k", ExitUsage, "--protect-address needs --protect-client-ca-file"},
		{"collect --protect-client-ca-file=c", ExitUsage, "set its address with --protect-address"},
		{"preview delete cm/a --namespace-deletion-order=pods", ExitUsage, "--namespace-deletion-order: no stage is *"},
		{"collect --protect-cert-file=c", ExitUsage, "set its address with --protect-address"},
		{"wait --help", ExitOK, "--timeout"},
		{"wait", ExitUsage, "name the deleted objects as TYPE/NAME, or the ID of a deletion"},
		{"wait cm/a -o xml", ExitUsage, `--output "xml" is unknown: choose one of text, json, yaml`},
		{"wait cm/a --timeout=-1s", ExitUsage, "--timeout -1s is negative"},
		{"wait cm/a -A", ExitUsage, "leave out --all-namespaces"},
		{"delete cm/a --timeout=1m --confirm d", ExitUsage, "--timeout is for --wait"},
		{"preview delete cm/a --max=-1", ExitUsage, "--max -1 is negative"},
		{"delete cm/a --confirm d --max=-1", ExitUsage, "--max -1 is negative"},
		{"delete cm/a --confirm d --confirm-from f", ExitUsage, "[confirm confirm-from] were all set; see coppice delete --help"},
		{"audit --fix --write-baseline f", ExitUsage, "[fix write-baseline] were all set; see coppice audit --help"},
		{"graph cm/a --up --down", ExitUsage, "[down up] were all set; see coppice graph --help"},
		{"mcp --help", ExitOK, "--allow-delete"},
		{"mcp extra", ExitUsage, `coppice mcp takes no arguments, got "extra"`},
		{"mcp --max=3", ExitUsage, "--max is for --allow-delete"},
		{"mcp --backup-dir=/nowhere", ExitUsage, "--backup-dir is for --allow-delete"},
		{"mcp --allow-delete --max=-1", ExitUsage, "--max -1 is negative"},
		{"mcp --token-file=/nowhere", ExitUsage, "are for --http-address"},
		{"mcp --http-address=8452", ExitUsage, "--http-address 8452 is not an address with a port"},
		{"mcp --http-address=:8452", ExitUsage, "is not an address of the loopback interface"},
		{"mcp --http-address=0.0.0.0:8452", ExitUsage, "need --tls-cert-file and --tls-private-key-file"},
		{"mcp --http-address=127.0.0.1:0 --tls-cert-file=c", ExitUsage, "go together"},
		{"mcp --log-level=loud", ExitUsage, `--log-level "loud"`},
		{"demo --help", ExitOK, "--story"},
		{"demo --list", ExitOK, "foreground  Foreground deletion"},
		{"demo extra", ExitUsage, `coppice demo takes no arguments, got "extra"`},
		{"demo --story=none", ExitUsage, `--story "none": there is no such story; see coppice demo --list`},
		{"demo --log-level=loud", ExitUsage, `--log-level "loud"`},
		{"kubectl get pods", ExitFailed, "no control plane has run on " + home},
	} {
		t.Run(test.line, func(t *testing.T) {
			got := run(t, strings.Fields(test.line)...)
			if got.code != test.code {
				t.Errorf("exit code %d, want %d", got.code, test.code)
			}
			if test.code == ExitOK {
				if !strings.Contains(got.out, test.says) || got.err != "" {
					t.Errorf("stdout %q, stderr %q, want %q", got.out, got.err, test.says)
				}
				return
			}
			if !strings.HasPrefix(got.err, "coppice: ") || !strings.Contains(got.err, test.says) || strings.Count(got.err, "\n") != 1 {
				t.Errorf("stderr %q, want one line with %q", got.err, test.says)
			}
			if got.out != "" {
				t.Errorf("stdout %q", got.out)
			}
		})
	}
}

func TestVersionIsPrinted(t *testing.T) {
	for _, test := range []struct{ line, says string }{
		{"version", "coppice devel, Kubernetes v1."},
		{"version -o json", `"version": "devel"`},
		{"version -o yaml", "version: devel"},
	} {
		if got := run(t, strings.Fields(test.line)...); got.code != ExitOK || !strings.Contains(got.out, test.says) {
			t.Errorf("%s: %+v, want %q", test.line, got, test.says)
		}
	}
}

func TestErrorsAreOneLine(t *testing.T) {
	if got := oneLine(errLines{}); got != "first; second" {
		t.Errorf("%q", got)
	}
}

type errLines struct{}

func (errLines) Error() string { return "first\nsecond" }
