package sections

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/bench/internal/census"
	"github.com/coppice-dev/coppice/bench/internal/controlplane"
	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

// answers is the number of requests to a running collector; the report shows the median.
const answers = 9

// tools measures the commands that explain deletions, on a server with the objects of a large cluster and no
// controllers but the collector.
func tools(ctx context.Context, b *Bench) error {
	err := b.onCoppice(ctx, func(ctx context.Context, p *controlplane.Plane) error {
		if err := b.populate(ctx, p, coppiceUp); err != nil {
			return err
		}
		if err := p.Collecting(ctx); err != nil { // the collector has then observed all of them
			return err
		}
		for _, command := range commands() {
			asked := append(slices.Clone(command.arguments), "--address", p.Config.Host, "--kubeconfig", p.Kubeconfig())
			if err := b.tool(ctx, coppiceUp, command.what+", asked of the collector", asked); err != nil {
				return err
			}
		}
		return b.answers(ctx, p)
	}, "--controllers=gc,namespace", "--nodes=0")
	if err != nil {
		return fmt.Errorf("%s: %w", coppiceUp, err)
	}
	err = b.onKubernetes(ctx, func(ctx context.Context, p *controlplane.Plane) error { return b.populate(ctx, p, kubernetes) })
	if err != nil {
		return fmt.Errorf("%s: %w", kubernetes, err)
	}
	return nil
}

// populate creates the objects, and measures the commands that read all of them.
func (b *Bench) populate(ctx context.Context, p *controlplane.Plane, side string) error {
	n, err := census.Create(ctx, p.Client, b.Sizes.CensusPart)
	if err != nil {
		return err
	}
	b.add(side, "objects", "", float64(n))
	if err := pause(ctx, b.Sizes.Idle); err != nil {
		return err
	}
	for _, command := range commands() {
		if err := b.tool(ctx, side, command.what+", all read anew", append(slices.Clone(command.arguments), "--address", "none", "--kubeconfig", p.Kubeconfig())); err != nil {
			return err
		}
	}
	return nil
}

// command is a command that is measured.
type command struct {
	what      string
	arguments []string
}

func commands() []command {
	of := []string{"deployment/" + census.Deployment, "--namespace", census.Largest}
	return []command{
		{"coppice preview, a Deployment", append([]string{"preview", "delete"}, of...)},
		{"coppice preview, a namespace with a tenth of all", []string{"preview", "delete", "namespace/" + census.Largest}},
		{"coppice explain, a Deployment", append([]string{"explain"}, of...)},
		{"coppice graph, a Deployment", append([]string{"graph"}, of...)},
	}
}

// tool measures one command, from its start to its end, and the most resident memory of its process.
func (b *Bench) tool(ctx context.Context, side, what string, arguments []string) error {
	var out bytes.Buffer
	c := exec.CommandContext(ctx, b.Coppice, arguments...)
	c.Stdout, c.Stderr = &out, &out
	watch := stopwatch.Start()
	if err := c.Start(); err != nil {
		return fmt.Errorf("coppice %v: %w", arguments, err)
	}
	most := mostResident(ctx, c.Process.Pid)
	err := c.Wait()
	seconds := watch.Seconds()
	if err != nil {
		return fmt.Errorf("coppice %v: %w: %.500s", arguments, err, out.Bytes())
	}
	b.add(side, what, "s", seconds)
	b.add(side, what+", most resident memory", "MB", float64(<-most)/1e6)
	return nil
}

// sampleEvery is the interval at which a command's memory is read.
const sampleEvery = 5 * time.Millisecond

// mostResident samples a process until it ends, and sends its peak resident memory in bytes, up to the last
// sample. The system's figure after the end is not used: it includes the memory of the process that started it.
func mostResident(ctx context.Context, pid int) <-chan int64 {
	most := make(chan int64, 1)
	go func() {
		last := int64(0)
		for {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			_, value, found := strings.Cut(string(text), "VmHWM:")
			if err != nil || !found { // the process has ended: a zombie has no memory
				most <- last
				return
			}
			kilobytes := int64(0)
			_, _ = fmt.Sscan(value, &kilobytes)
			last = kilobytes * 1024
			if pause(ctx, sampleEvery) != nil {
				most <- last
				return
			}
		}
	}()
	return most
}

// answers measures the answers of a running collector, without the start of a command.
func (b *Bench) answers(ctx context.Context, p *controlplane.Plane) error {
	for _, question := range []struct{ what, path, object string }{
		{"answer: preview, a Deployment", "/coppice/v1/preview", "deployments.apps/" + census.Largest + "/" + census.Deployment},
		{"answer: preview, a namespace with a tenth of all", "/coppice/v1/preview", "namespaces/" + census.Largest},
		{"answer: explain, a Deployment", "/coppice/v1/explain", "deployments.apps/" + census.Largest + "/" + census.Deployment},
	} {
		var seconds []float64
		for range answers {
			watch := stopwatch.Start()
			if _, err := p.Client.Discovery().RESTClient().Get().AbsPath(question.path).Param("object", question.object).DoRaw(ctx); err != nil {
				return fmt.Errorf("%s: %w", question.what, err)
			}
			seconds = append(seconds, watch.Seconds())
		}
		slices.Sort(seconds)
		b.add(coppiceUp, question.what, "s", seconds[answers/2])
	}
	return nil
}
