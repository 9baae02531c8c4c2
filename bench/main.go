// Command bench measures a control plane from outside: how soon it is ready, how
// much memory it takes idle, and how fast and at what cost in requests it carries
// out a cascade of many dependents under each policy.
//
// Each run starts a control plane of its own, on loopback, with an empty data
// directory that is synced to disk. What is printed is the median of the runs, with
// the lowest and the highest.
//
//	go run . -binary ../bin/coppice -runs 3 -dependents 10000
//
// With -kubernetes it measures collectors instead, side by side on one unmodified
// kube-apiserver: upstream's with its default settings, upstream's with its limits
// lifted, and ours (coppice collect). The ratios are taken within each run.
//
//	go run . -kubernetes -runs 3 -dependents 2000
//
// With -writes it measures how many small objects are written in a second, and how soon
// a change reaches many watchers.
//
// With -workloads it measures deployments on simulated nodes: created until all of their
// pods run, deleted until all is gone, and which part sends how many requests for a pod.
//
//	go run . -workloads -deployments 100 -runs 1
//
// A cascade is timed from its DELETE to the watch event after which nothing is left
// to do. Its requests are those that the server counted meanwhile.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"text/tabwriter"
)

// config is what the flags say.
type config struct {
	binary     string
	runs       int
	dependents int
	limited    int
	creators   int
	output     string
	kubernetes bool
	module     string
	writes     bool
	watchers   int
	profiles   string

	workloads   bool
	deployments int
}

// How many dependents a cascade has where nothing else is said: more for a control
// plane alone than where collectors are compared, of which one is slow.
const (
	manyDependents    = 10000
	compareDependents = 2000
)

// sample is one measured figure.
type sample struct {
	what, unit string
	value      float64
}

func main() {
	var c config
	flag.StringVar(&c.binary, "binary", "../bin/coppice", "the coppice binary to measure")
	flag.IntVar(&c.runs, "runs", 3, "how many control planes to start, one after the other")
	flag.IntVar(&c.dependents, "dependents", 0, "dependents of the owner that is deleted (default 10000; 2000 with -kubernetes)")
	flag.IntVar(&c.limited, "limited-dependents", 200, "the same for upstream's collector with its default limit of some 20 objects a second")
	flag.IntVar(&c.creators, "creators", 32, "clients that create the dependents")
	flag.StringVar(&c.output, "o", "", "json, or empty for a table")
	flag.BoolVar(&c.kubernetes, "kubernetes", false, "compare collectors on one kube-apiserver")
	flag.StringVar(&c.module, "module", "kubernetes", "the directory of the module that kube-apiserver is built from")
	flag.BoolVar(&c.writes, "writes", false, "measure creates, updates and deletes of small objects, and the fan-out of watches")
	flag.IntVar(&c.watchers, "watchers", 1000, "watchers of the object that is changed, with -writes")
	flag.BoolVar(&c.workloads, "workloads", false, "measure deployments on simulated nodes")
	flag.IntVar(&c.deployments, "deployments", 1000, "how many deployments of 3 there are, with -workloads")
	flag.StringVar(&c.profiles, "profiles", "", "a directory to put CPU profiles of the control plane into; it is slower meanwhile")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measure(ctx, c); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, c config) error {
	once := oneRun
	if c.kubernetes {
		c.dependents = cmp.Or(c.dependents, compareDependents)
		a, err := startArena(ctx, c)
		if err != nil {
			return err
		}
		defer func() {
			if err := a.server.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, "bench:", err)
			}
		}()
		once = a.oneRun
	}
	if c.writes {
		once = writes
	}
	if c.workloads {
		once = workloads
	}
	c.dependents = cmp.Or(c.dependents, manyDependents)
	var samples []sample
	for run := range c.runs {
		fmt.Fprintf(os.Stderr, "run %d of %d\n", run+1, c.runs)
		got, err := once(ctx, c)
		if err != nil {
			return err
		}
		samples = append(samples, got...)
	}
	return report(summarize(samples), c.output)
}

// figure is what a benchmark reports: the median of its samples and their range.
type figure struct {
	What   string  `json:"what"`
	Unit   string  `json:"unit"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Runs   int     `json:"runs"`
}

func summarize(samples []sample) []figure {
	var order []string
	values := map[string][]float64{}
	units := map[string]string{}
	for _, s := range samples {
		if _, ok := values[s.what]; !ok {
			order = append(order, s.what)
		}
		values[s.what] = append(values[s.what], s.value)
		units[s.what] = s.unit
	}
	var figures []figure
	for _, what := range order {
		v := slices.SortedFunc(slices.Values(values[what]), cmp.Compare[float64])
		figures = append(figures, figure{What: what, Unit: units[what], Median: v[len(v)/2], Min: v[0], Max: v[len(v)-1], Runs: len(v)})
	}
	return figures
}

func report(figures []figure, output string) error {
	if output == "json" {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(figures)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tMEDIAN\tMIN\tMAX\tUNIT")
	for _, f := range figures {
		fmt.Fprintf(w, "%s\t%.4g\t%.4g\t%.4g\t%s\n", f.What, f.Median, f.Min, f.Max, f.Unit)
	}
	return w.Flush()
}
