package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"

	"github.com/coppice-dev/coppice/internal/tools/terminal"
)

// TestWarningsOfTheServerAreEscaped: a server's warning is printed once, on the stderr of the command, and does not
// control the terminal.
func TestWarningsOfTheServerAreEscaped(t *testing.T) {
	atHome(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Warning", "299 - \"turned \u202e around\"")
		_, _ = w.Write([]byte(`{"gitVersion": "v1.37.2"}`))
	}))
	defer server.Close()
	var stderr bytes.Buffer
	var flags clusterFlags
	c := &cobra.Command{}
	c.SetErr(terminal.NewWriter(&stderr))
	flags.add(c)
	if err := c.ParseFlags([]string{"--server", server.URL}); err != nil {
		t.Fatal(err)
	}
	config, err := flags.config()
	if err != nil {
		t.Fatal(err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := client.ServerVersion(); err != nil {
			t.Fatal(err)
		}
	}
	if want := "Warning: turned \\u202e around\n"; stderr.String() != want {
		t.Errorf("stderr: %q, want %q", stderr.String(), want)
	}
}
