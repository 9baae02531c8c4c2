// Command coppice is garbage collection for Kubernetes-style APIs. See coppice --help.
package main

import (
	"context"
	"os"

	"github.com/coppice-dev/coppice/internal/cli"
)

func main() {
	os.Exit(cli.Run(context.Background(), os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
