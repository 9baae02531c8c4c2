package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/coppice-dev/collector"
	"k8s.io/client-go/rest"
)

// run collects the garbage of a server that is not there, until it has had the time to notice.
func run() {
	c, err := collector.New(&rest.Config{Host: "http://127.0.0.1:1"}, collector.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	err = c.Run(ctx)
	fmt.Println(err, c.Ready(), len(c.Records()), c.Status().Synced)
}

func init() { run() }
