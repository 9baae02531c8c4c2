package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/coppice-dev/coppice/internal/system"
)

// kubeconfig writes a kubeconfig with the given current context.
func kubeconfig(t *testing.T, path, context string) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Contexts[context] = &clientcmdapi.Context{}
	c.CurrentContext = context
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// kubectl uses our control plane and not the one that KUBECONFIG happens to name, unless that is
// ours, too, or the command line names another one.
func TestKubectlChoosesTheControlPlane(t *testing.T) {
	home := atHome(t)
	dir := filepath.Join(home, "data")
	t.Setenv(dataDirVariable, dir)
	own := kubeconfig(t, system.KubeconfigPath(dir), system.ContextName)
	copied := kubeconfig(t, filepath.Join(home, "copy"), system.ContextName)
	foreign := kubeconfig(t, filepath.Join(home, "foreign"), "production")
	for _, test := range []struct{ name, variable, line, want string }{
		{"no variable", "", "get pods", own},
		{"another one's", foreign, "get pods", own},
		{"one that is not there", filepath.Join(home, "nothing"), "get pods", own},
		{"a copy of ours", copied, "get pods", copied},
		{"named by flag", foreign, "get pods --kubeconfig " + foreign, foreign},
		{"named by flag with =", foreign, "get pods --kubeconfig=" + foreign, foreign},
		{"server by flag", foreign, "get pods --server=https://elsewhere", foreign},
		{"server by short flag", foreign, "-s https://elsewhere get pods", foreign},
		{"server by short flag with =", foreign, "get pods -s=https://elsewhere", foreign},
		{"a flag that begins like --server", foreign, "apply --server-side -f m.yaml", own},
		{"another flag that begins like --server", foreign, "get pods --server-print=false", own},
		{"a flag of the command in the container", foreign, "exec web -- curl -s localhost", own},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", test.variable)
			if err := chooseKubeconfig(strings.Fields(test.line)); err != nil {
				t.Fatal(err)
			}
			if got := os.Getenv("KUBECONFIG"); got != test.want {
				t.Errorf("it takes %s, want %s", got, test.want)
			}
		})
	}
}

// Without a control plane, commands that need a server say what to do, and other commands work.
func TestKubectlWithoutControlPlane(t *testing.T) {
	home := atHome(t)
	for line, offline := range map[string]bool{
		"get pods": false, "delete pod a --now": false, "exec a -- ls --help": false, "apply -f help.yaml": false, "-n default get pods": false,
		"": true, "help": true, "get --help": true, "get -h": true, "completion bash": true, "version --client": true, "config view": true, "__complete get": true,
	} {
		t.Setenv("KUBECONFIG", "")
		err := chooseKubeconfig(strings.Fields(line))
		if (err == nil) != offline {
			t.Errorf("kubectl %s: %v", line, err)
		}
		if err != nil && (!strings.Contains(err.Error(), `"coppice up"`) || !strings.Contains(err.Error(), home) || !strings.Contains(err.Error(), dataDirVariable)) {
			t.Errorf("kubectl %s: %v does not say what to do", line, err)
		}
	}
}

func TestKubectlIsBuiltIn(t *testing.T) {
	atHome(t)
	if got := run(t, "kubectl", "version", "--client"); got.code != ExitOK || !strings.Contains(got.out, "Client Version") {
		t.Errorf("%+v", got)
	}
}
