package coppice_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice"
)

// A server that cannot be reached is waited for, and Run ends when it is told to.
func TestRunWithoutServer(t *testing.T) {
	config := &rest.Config{Host: "http://127.0.0.1:1"}
	c, err := coppice.New(config, coppice.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if config.UserAgent != "" || config.QPS != 0 {
		t.Errorf("the caller's config was changed: %+v", config)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Run = %v, want no error at the end of ctx", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Run does not end with its context")
	}
	if c.Synced() {
		t.Error("Synced without a server")
	}
}

func TestNewRefusesBadConfig(t *testing.T) {
	config := &rest.Config{Host: "https://x", TLSClientConfig: rest.TLSClientConfig{CAFile: "/nowhere"}}
	if _, err := coppice.New(config, coppice.Options{}); err == nil {
		t.Error("New took a config with a CA file that is not there")
	}
}
