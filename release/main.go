// Command release makes the files of a release of Coppice: archives with the binary for each
// platform, archives for test suites with their index, a container image, a chart, the manifests of
// package managers, the collector as a Go module of its own, bills of materials of the binaries, and
// the checksums of all files. It needs only Go, and the same source makes the same files. make dist
// runs it.
//
// With -serve it serves these files on loopback, to test their installation.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/mod/semver"

	"github.com/coppice-dev/coppice/release/internal/manifests"
	"github.com/coppice-dev/coppice/release/internal/target"
)

// ownAddress is the address of -serve. The files of an unpublished release refer to it.
const ownAddress = "127.0.0.1:8451"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, report io.Writer) error {
	r := release{built: map[target.Target]string{}, report: report}
	flags := flag.NewFlagSet("release", flag.ExitOnError)
	flags.StringVar(&r.version, "version", "", "the version of the release, a semantic one with a v")
	flags.StringVar(&r.kubernetes, "kubernetes", "", "the version of Kubernetes that is served")
	flags.StringVar(&r.baseURL, "base-url", "http://"+ownAddress, "where the files will be")
	flags.StringVar(&r.image, "image", "docker.io/library/coppice", "the name of the image, without its tag")
	flags.StringVar(&r.repository, "repository", "..", "the directory with the source")
	flags.StringVar(&r.output, "o", "../dist", "directory for the files; files of an earlier release are removed")
	flags.StringVar(&r.linkerFlags, "ldflags", "", "more flags of the linker")
	seconds := flags.Int64("epoch", 0, "the time of all files, in seconds since 1970")
	platforms := flags.String("targets", "", "platforms, such as linux/amd64,linux/arm64 (default: all)")
	serve := flags.String("serve", "", "serve the files in this directory on "+ownAddress+", and do nothing else")
	proxy := flags.String("module", "", "write the Go module of the collector into this directory, as a module proxy serves it, and do nothing else")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *serve != "" {
		return serveFiles(ctx, *serve, report)
	}
	r.made = time.Unix(*seconds, 0)
	if *proxy != "" {
		if err := checkVersion("-version", r.version); err != nil {
			return err
		}
		return r.writeModule(*proxy)
	}
	if err := r.check(*platforms); err != nil {
		return err
	}
	return r.make(ctx)
}

// check checks the user's input.
func (r *release) check(platforms string) error {
	for name, version := range map[string]string{"-version": r.version, "-kubernetes": r.kubernetes} {
		if err := checkVersion(name, version); err != nil {
			return err
		}
	}
	var err error
	if r.targets, err = target.ParseList(platforms); err != nil {
		return err
	}
	return manifests.CheckURL(r.baseURL)
}

// checkVersion checks the value of a flag that is a version.
func checkVersion(name, version string) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return fmt.Errorf("%s %q: give a semantic version without a +, such as v1.2.3", name, version)
	}
	return nil
}

// serveFiles serves a directory until it is stopped.
func serveFiles(ctx context.Context, dir string, report io.Writer) error {
	if _, err := os.Stat(filepath.Join(dir, sumsName)); err != nil {
		return fmt.Errorf("%s has no files of a release: run make dist first (%w)", dir, err)
	}
	server := &http.Server{Addr: ownAddress, Handler: http.FileServer(http.Dir(dir)), ReadHeaderTimeout: time.Minute}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if _, err := fmt.Fprintf(report, "serving %s at http://%s\n", dir, ownAddress); err != nil {
		return err
	}
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
