package system

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// The administrator's kubeconfig stays valid as long as the control plane runs; the current context remains
// as the user has set it.
func TestKubeconfigIsRenewed(t *testing.T) {
	dir := t.TempDir()
	clk := clocktesting.NewFakeClock(time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC))
	authority, err := auth.LoadAuthority(filepath.Join(dir, "pki"), clk.Now)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kubeconfig")
	c := credentials{authority, "https://127.0.0.1:1", administrator(), path, []string{""}, slog.New(slog.DiscardHandler)}
	first, err := c.issue(ContextName)
	if err != nil {
		t.Fatal(err)
	}
	until := func() time.Time {
		block, _ := pem.Decode(read(t, path).AuthInfos[auth.AdminUser].ClientCertificateData)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return cert.NotAfter
	}
	config := read(t, path)
	if config.CurrentContext != ContextName {
		t.Errorf("current is %q", config.CurrentContext)
	}
	config.CurrentContext = "mine"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	before := until()

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.keepFresh(ctx, clk, first)
	}()
	eventually.Holds(t, "it waits for the time to renew", clk.HasWaiters)
	clk.SetTime(first.Due)
	eventually.Holds(t, "the certificate is another", func() bool { return until().After(before) })
	if got := read(t, path).CurrentContext; got != "mine" {
		t.Errorf("current is %q", got)
	}
	stop()
	<-ended
}
