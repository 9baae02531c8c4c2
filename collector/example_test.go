package collector_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os/signal"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/collector"
)

// Collect the garbage of the API server that the kubeconfig names, until interrupted.
func Example() {
	config, err := clientcmd.BuildConfigFromFlags("", clientcmd.RecommendedHomeFile)
	if err != nil {
		log.Fatal(err)
	}
	c, err := collector.New(config, collector.Options{Logger: slog.Default()})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := c.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// Say what was collected, and on what evidence.
func ExampleCollector_Records() {
	var c *collector.Collector // a running one

	for _, r := range c.Records() {
		fmt.Println(r.Object.Kind, r.Object.Namespace, r.Object.Name, r.Action)
		for _, owner := range r.Owners {
			fmt.Println("  ", owner.Kind, owner.Name, owner.Standing, owner.Evidence)
		}
	}
}
