package coppice_test

import (
	"context"
	"log"
	"log/slog"
	"os/signal"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice"
)

// Collect the garbage of the cluster that the kubeconfig names, until interrupted.
func Example() {
	config, err := clientcmd.BuildConfigFromFlags("", clientcmd.RecommendedHomeFile)
	if err != nil {
		log.Fatal(err)
	}
	collector, err := coppice.New(config, coppice.Options{Logger: slog.Default()})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := collector.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
