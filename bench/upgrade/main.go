// Command upgrade writes what changes from one minor of Kubernetes to the next, for the person who
// upgrades Coppice (docs/upgrade.md):
//
//	go run ./upgrade -from v1.36.3 -to v1.37.2 -o ../bin/upgrade.md
//
// It downloads the modules of both releases, and reads what upstream generates into them: the
// discovery and OpenAPI documents with everything enabled, and the list of feature gates. Of the
// code whose behaviour is implemented here, it lists the files that differ.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

func main() {
	var r releases
	flag.StringVar(&r.from, "from", "", "the release that the server is compared with now, for example v1.36.3")
	flag.StringVar(&r.to, "to", "", "the release to go to, for example v1.37.2")
	findings := flag.String("findings", "", "file with the differences between the server and the new release, one per line, as the comparison of objects records them")
	output := flag.String("o", "/dev/stdout", "file for the page")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, r, *findings, *output); err != nil {
		fmt.Fprintf(os.Stderr, "upgrade: %v\n", err)
		os.Exit(1)
	}
}

// releases are the versions of k8s.io/kubernetes that are compared.
type releases struct{ from, to string }

func (r releases) check() error {
	for _, version := range []string{r.from, r.to} {
		if !strings.HasPrefix(version, "v1.") {
			return fmt.Errorf("%q is no release of Kubernetes: give both, for example -from v1.36.3 -to v1.37.2", version)
		}
	}
	return nil
}

func run(ctx context.Context, r releases, findings, output string) error {
	if err := r.check(); err != nil {
		return err
	}
	before, err := download(ctx, r.from)
	if err != nil {
		return err
	}
	after, err := download(ctx, r.to)
	if err != nil {
		return err
	}
	var page strings.Builder
	fmt.Fprintf(&page, "# From Kubernetes %s to %s\n\nWritten by `make upgrade-report`; [upgrade.md](../docs/upgrade.md) has the steps.\n", r.from, r.to)
	err = errors.Join(
		resourcesChanged(&page, before, after),
		fieldsChanged(&page, before, after),
		gatesChanged(&page, before, after),
		codeChanged(ctx, &page, before, after),
		differencesFound(&page, findings),
	)
	if err != nil {
		return err
	}
	return os.WriteFile(output, []byte(page.String()), 0o644)
}

// section writes a section of the page; the lines of a row after its first one are indented.
func section(page *strings.Builder, title, purpose string, rows []string) {
	fmt.Fprintf(page, "\n## %s: %d\n\n%s\n\n", title, len(rows), purpose)
	for _, row := range rows {
		fmt.Fprintf(page, "* %s\n", row)
	}
	if len(rows) == 0 {
		page.WriteString("(none)\n")
	}
}

// compare reads the same part of two releases, and compares them.
func compare[T any](before, after release, read func(release) (T, error), changes func(old, young T) []string) ([]string, error) {
	old, err := read(before)
	if err != nil {
		return nil, err
	}
	young, err := read(after)
	if err != nil {
		return nil, err
	}
	return changes(old, young), nil
}
