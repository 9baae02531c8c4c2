// Command coppice is garbage collection for Kubernetes-style APIs. See coppice --help.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/cli"
)

func main() {
	if err := apiserver.SetFeatureGates(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(cli.Run(context.Background(), os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
