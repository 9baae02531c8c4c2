package coppice_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
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

// Run both controllers, each with credentials of its own, for a server that has neither.
func ExampleControllers() {
	var forCollector, forNamespaces *rest.Config // of the controllers' users

	collector, err := coppice.New(forCollector, coppice.Options{})
	if err != nil {
		log.Fatal(err)
	}
	namespaces, err := coppice.NewNamespaceController(forNamespaces, coppice.NamespaceOptions{
		DeletionOrder: coppice.DeletionOrder{
			{{Group: "apps", Resource: "deployments"}, {Group: "apps", Resource: "statefulsets"}},
			{{Resource: "pods"}},
			{{Resource: coppice.EverythingElse}},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	controllers := coppice.Controllers{Collector: collector, Namespaces: namespaces}
	if err := controllers.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// Metrics of a controller can be registered with the registry of the program that it is part of.
func ExampleCollector_Metrics() {
	collector, err := coppice.New(&rest.Config{Host: "https://localhost:6443"}, coppice.Options{})
	if err != nil {
		log.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector.Metrics())

	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "coppice_synced" {
			fmt.Println(family.GetName(), family.GetMetric()[0].GetGauge().GetValue())
		}
	}
	// Output: coppice_synced 0
}

// With a breaker, the deletions of a kind are paused when there are too many of them within a time
// window. An administrator looks at the deleted objects and the reasons, and resumes the deletions.
func ExampleBreaker() {
	var config *rest.Config
	collector, err := coppice.New(config, coppice.Options{
		Breaker: coppice.Breaker{Share: 0.1, Window: 5 * time.Minute, Min: 50},
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = collector.Run(context.Background()) }()

	for _, paused := range collector.Status().Paused {
		for _, record := range collector.Records() {
			if record.Object.Kind == paused.Kind && record.Action == coppice.ActionDelete {
				fmt.Println(record.Time, record.Object.Namespace, record.Object.Name, record.Decision)
			}
		}
		collector.Resume(schema.ParseGroupKind(paused.Kind))
	}
}

// Draw everything that is connected with an object.
func ExampleCollector_WriteGraph() {
	var collector *coppice.Collector // a running one
	var uid coppice.UID              // of the object

	if err := collector.WriteGraph(os.Stdout, coppice.GraphSVG, uid); err != nil {
		log.Fatal(err)
	}
}

// Parse an order as given by a flag.
func ExampleParseDeletionOrder() {
	order, err := coppice.ParseDeletionOrder("pods; *; secrets, roles.rbac.authorization.k8s.io")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(order), order)
	_, err = coppice.ParseDeletionOrder("pods")
	fmt.Println(err)
	// Output:
	// 3 pods;*;secrets,roles.rbac.authorization.k8s.io
	// no stage is *: resources that no stage names would never be deleted
}
