package cli

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/wireserver"
)

// --namespace confines the whole graph; the default is all namespaces.
func TestGraphOfNamespace(t *testing.T) {
	atHome(t)
	cluster := wireserver.New(wireserver.Resource{Name: "configmaps", Kind: "ConfigMap"})
	other := wireserver.Owned("b", "b", "gone-b")
	other.Namespace = "other"
	cluster.Put("configmaps", wireserver.Owned("a", "a", "gone-a"))
	cluster.Put("configmaps", other)
	server := httptest.NewServer(cluster)
	t.Cleanup(server.Close)
	for flags, want := range map[string]string{"": "ab", "-A": "ab", "-n other": "b", "-n default": "a", "-n default -A": "ab", "-n none": ""} {
		got := runFully(t.Context(), append([]string{"graph", "--server", server.URL}, strings.Fields(flags)...)...)
		has := ""
		for _, name := range []string{"a", "b"} {
			if strings.Contains(got.out, "/owner-gone-"+name) && strings.Contains(got.out, "/"+name+" ") {
				has += name
			}
		}
		if got.code != ExitOK || has != want {
			t.Errorf("%q: exit code %d, %q, want %q\n%s%s", flags, got.code, has, want, got.out, got.err)
		}
	}
}
