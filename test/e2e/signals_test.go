package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coppice-dev/coppice/internal/testing/transcript"
)

// interrupted is a process that gets a signal during its start.
type interrupted struct {
	command *exec.Cmd
	temp    string // where it may have temporary files, and its home
	output  transcript.Transcript
	ended   chan struct{}
}

func begin(temp, path string, args ...string) (*interrupted, error) {
	p := &interrupted{command: exec.Command(path, args...), temp: temp, ended: make(chan struct{})}
	p.command.Env = append(os.Environ(), "TMPDIR="+temp, "HOME="+temp)
	p.command.Stdout, p.command.Stderr = &p.output, &p.output
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.command.Wait()
		close(p.ended)
	}()
	return p, nil
}

// processorTime returns how much processor time the process has taken, which is how far it has come.
func (p *interrupted) processorTime() time.Duration {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.command.Process.Pid))
	if err != nil {
		return 0
	}
	var sum time.Duration
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		nanoseconds, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseInt(nanoseconds, 10, 64)
		if err == nil {
			sum += time.Duration(n)
		}
	}
	return sum
}

// reaches waits until the condition holds, or the process has ended.
func (p *interrupted) reaches(condition func() bool) error {
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	late := time.After(patience)
	for !condition() {
		select {
		case <-ticks.C:
		case <-p.ended:
			return nil
		case <-late:
			return errors.Join(fmt.Errorf("%v does not go on: %s", p.command, p.output.String()), p.command.Process.Kill())
		}
	}
	return nil
}

// stop sends a signal, and returns the problem with the end of the process, if any.
func (p *interrupted) stop(signal os.Signal) error {
	if err := p.command.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := p.reaches(func() bool { return false }); err != nil {
		return err
	}
	if code := p.command.ProcessState.ExitCode(); code != 0 && code != 1 {
		return fmt.Errorf("it ends with %v: %s", p.command.ProcessState, p.output.String())
	}
	left, err := os.ReadDir(p.temp)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("it leaves %v: %s", left, p.output.String())
	}
	return err
}

// catchesSignals returns the processor time after which a process catches signals, with a margin. Before, it has done
// nothing but to initialize Go and its standard library, and a signal ends it as it ends any process.
func catchesSignals(t *testing.T) time.Duration {
	t.Helper()
	version := exec.Command(binary, "version")
	if err := version.Run(); err != nil {
		t.Fatal(err)
	}
	return (version.ProcessState.UserTime() + version.ProcessState.SystemTime()) / 4
}

// A process that gets a signal at any moment of its start ends with 0 or 1, and leaves no temporary file. The moments
// are fractions of the processor time of a whole start, so a busy machine does not move them. Each run draws others; a
// failure names the moment.
func TestSignalsDuringTheStart(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		missing(t, "/proc/PID/schedstat")
	}
	p, first := sharedPlane(t), catchesSignals(t)
	data, node := t.TempDir(), filepath.Join(t.TempDir(), "kubeconfig")
	startPlane(t, "--ephemeral", "--secure-port=0", noNodes, "--write-node-kubeconfig", "signalled="+node)
	for _, test := range []struct {
		name    string
		args    []string
		ready   string // its output once it has started
		signal  os.Signal
		moments int
		atOnce  int
	}{
		{"up --ephemeral", []string{"up", "--ephemeral", "--secure-port=0"}, "\nready ", syscall.SIGTERM, 16, 2},
		{"up --ephemeral, Ctrl-C", []string{"up", "--ephemeral", "--secure-port=0"}, "\nready ", os.Interrupt, 6, 2},
		{"up", []string{"up", "--data-dir", data, "--secure-port=0"}, "\nready ", syscall.SIGTERM, 6, 1},
		{"collect", []string{"collect", "--bind-address=0", "--kubeconfig", p.kubeconfig}, "collecting", syscall.SIGTERM, 6, 2},
		{"node", []string{"node", "--kubeconfig", node}, "ready node ", syscall.SIGTERM, 8, 1},
		{"web", []string{"web", "--kubeconfig", p.kubeconfig}, "open ", os.Interrupt, 8, 2},
		{"demo", []string{"demo", "--plain"}, "\n── 1/", os.Interrupt, 6, 2},
		{"demo --web", []string{"demo", "--web"}, "open ", syscall.SIGTERM, 6, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			whole, err := begin(t.TempDir(), binary, test.args...)
			if err != nil {
				t.Fatal(err)
			}
			if err := whole.reaches(func() bool { return strings.Contains(whole.output.String(), test.ready) }); err != nil {
				t.Fatal(err)
			}
			needs := whole.processorTime()
			if err := whole.stop(test.signal); err != nil {
				t.Fatal(err)
			}
			if needs == 0 {
				t.Fatalf("it ends before it has started: %s", whole.output.String())
			}
			var group errgroup.Group
			group.SetLimit(test.atOnce)
			for i := range test.moments {
				at := first + time.Duration(float64(max(0, needs-first))*(float64(i)+rand.Float64())/float64(test.moments))
				temp := t.TempDir()
				group.Go(func() error {
					one, err := begin(temp, binary, test.args...)
					if err == nil {
						err = one.reaches(func() bool { return one.processorTime() >= at || strings.Contains(one.output.String(), test.ready) })
					}
					if err == nil {
						err = one.stop(test.signal)
					}
					if err != nil {
						err = fmt.Errorf("after %s of %s: %w", at, needs, err)
					}
					return err
				})
			}
			if err := group.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	last := startPlane(t, "--data-dir", data, "--secure-port=0")
	if code, body := last.curl(t, last.server+"/readyz"); code != "200" {
		t.Errorf("on a directory of interrupted starts: %s %s", code, body)
	}
}
