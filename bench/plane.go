package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	startTimeout = 60 * time.Second
	// settle is how long a control plane is left alone before its memory is read.
	settle = 10 * time.Second
)

// plane is a control plane under measurement.
type plane struct {
	command  *exec.Cmd
	dir      string
	ready    time.Duration
	config   *rest.Config
	client   kubernetes.Interface
	metadata metadata.Interface
	cascades int // how many were measured so far
}

// startPlane starts the binary on an empty directory and waits for its ready line.
func startPlane(ctx context.Context, binary string, args ...string) (*plane, error) {
	dir, err := os.MkdirTemp("", "coppice-bench-*")
	if err != nil {
		return nil, err
	}
	p := &plane{dir: dir}
	args = append([]string{"up", "--data-dir", filepath.Join(dir, "data"), "--secure-port=0", "--log-level=error"}, args...)
	p.command = exec.CommandContext(ctx, binary, args...)
	var stderr bytes.Buffer
	p.command.Stderr = &stderr
	stdout, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	kubeconfig := ""
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if path, ok := strings.CutPrefix(lines.Text(), "export KUBECONFIG="); ok {
			kubeconfig = path
		}
		if strings.HasPrefix(lines.Text(), "ready ") {
			p.ready = time.Since(began)
			return p, p.connect(kubeconfig)
		}
		if time.Since(began) > startTimeout {
			break
		}
	}
	p.stop()
	return nil, fmt.Errorf("%s up does not become ready: %s", binary, stderr.String())
}

func (p *plane) connect(kubeconfig string) error {
	var err error
	if p.config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return err
	}
	p.config.QPS = -1
	p.config.ContentType = "application/vnd.kubernetes.protobuf"
	if p.client, err = kubernetes.NewForConfig(p.config); err != nil {
		return err
	}
	p.metadata, err = metadata.NewForConfig(p.config)
	return err
}

func (p *plane) stop() {
	_ = p.command.Process.Signal(syscall.SIGINT)
	_ = p.command.Wait()
	_ = os.RemoveAll(p.dir)
}

// memory is what /proc says of the memory of the process in that field, in MB of 10⁶ bytes.
func (p *plane) memory(field string) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc/%d/status", field, p.command.Process.Pid)
}

// requests is how many requests the server has answered so far, watches not
// counted: a watch is counted when it ends.
func (p *plane) requests(ctx context.Context) (float64, error) {
	data, err := p.client.Discovery().RESTClient().Get().AbsPath("/metrics").SetHeader("Accept", "text/plain").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("read /metrics: %w", err)
	}
	total := 0.0
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, "apiserver_request_total{") || strings.Contains(line, `verb="WATCH"`) {
			continue
		}
		fields := strings.Fields(line)
		n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return 0, fmt.Errorf("parse %q: %w", line, err)
		}
		total += n
	}
	return total, nil
}
