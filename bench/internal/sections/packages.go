package sections

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/coppice-dev/coppice/bench/internal/controlplane"
)

// goBenchmark is a benchmark of a package of the main module.
type goBenchmark struct {
	pattern, time string
	packages      []string
}

// barrier is the benchmark of the cost of proving that no dependent was missed.
func barrier() goBenchmark {
	return goBenchmark{"Barrier", "3x", []string{"./test/conformance"}}
}

// packages runs the Go benchmarks of packages.
func packages(ctx context.Context, b *Bench) error {
	for _, g := range []goBenchmark{
		{".", "1s", []string{"./internal/rules/ownership"}},
		{".", "3x", []string{"./internal/collect/feed", "./internal/collect/collector"}},
		{"Runtime", "5000x", []string{"./cmd/coppice"}},
		{"ReturnedMemory", "1x", []string{"./cmd/coppice"}},
		{"ClientCertificate", "1s", []string{"./internal/apiserver"}},
		{"WatchProgress", "100x", []string{"./internal/apiserver/etcd"}},
		{"ConsistentList", "100x", []string{"./internal/apiserver/storage"}},
		{"CorruptObject", "1x", []string{"./internal/apiserver/storage"}},
		{".", "20x", []string{"./internal/tools/insight"}},
		{"Predict|Explain|Preview", "10x", []string{"./internal/tools/preview", "./internal/tools/explain", "./internal/tools/web/api"}},
		barrier(),
	} {
		if err := b.goTest(ctx, g, "coppice", nil); err != nil {
			return err
		}
	}
	return b.onKubernetes(ctx, func(ctx context.Context, p *controlplane.Plane) error {
		return b.goTest(ctx, barrier(), coppiceCollect, []string{"COPPICE_CONFORMANCE_KUBECONFIG=" + p.Kubeconfig()})
	})
}

// goTest runs benchmarks and adds the values that they report.
func (b *Bench) goTest(ctx context.Context, g goBenchmark, side string, environment []string) error {
	if b.Sizes.Quick {
		g.time = "1x"
	}
	args := append([]string{"test", "-run", "^$", "-bench", g.pattern, "-benchtime", g.time, "-timeout", "1h"}, g.packages...)
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = b.Repository
	command.Env = append(os.Environ(), environment...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		const shown = 2000 // the log of a benchmark that fails may be very long
		return fmt.Errorf("%s: %w\n%s%s", strings.Join(command.Args, " "), err, out[:min(len(out), shown)], stderr.Bytes())
	}
	n, err := b.addBenchmarks(side, out)
	if err == nil && n == 0 {
		err = errors.New("no benchmark has run")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(command.Args, " "), err)
	}
	return nil
}

// addBenchmarks adds the values that benchmarks printed, and returns their number:
//
//	BenchmarkBarrier/Foreground-2    3    1.2 s-with    0.9 s-without
func (b *Bench) addBenchmarks(side string, out []byte) (int, error) {
	count, pkg := 0, ""
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 2 && fields[0] == "pkg:" {
			pkg = fields[1][strings.LastIndexByte(fields[1], '/')+1:]
		}
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if at := strings.LastIndexByte(name, '-'); at > 0 {
			name = name[:at] // the number of processors
		}
		for i := 2; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return count, fmt.Errorf("parse %q: %w", lines.Text(), err)
			}
			b.add(side, pkg+" "+name, fields[i+1], v)
			count++
		}
	}
	return count, nil
}
