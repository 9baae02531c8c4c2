package realserver

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// stages are the stages that kwokctl create cluster gives to kwok, in the directory kustomize/stage of its module: a
// node is ready at once, and has its heartbeats in a Lease; a pod is ready once it is bound, without a delay, and is
// removed once it is deleted, whatever its grace period is.
func stages() []string {
	return []string{
		"node/fast/node-initialize.yaml", "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
		"pod/fast/pod-ready.yaml", "pod/fast/pod-complete.yaml", "pod/fast/pod-delete.yaml",
	}
}

// Stages returns the paths of kwok's own stages, unmodified, in the version that the module kwok below the directory
// modules requires. It downloads that version if the module cache does not have it.
func Stages(ctx context.Context, modules string) ([]string, error) {
	from := Kwok.origin()
	download := exec.CommandContext(ctx, "go", "mod", "download", "-json", from.upstream)
	download.Dir = filepath.Join(modules, from.module)
	out, err := download.Output()
	if err != nil {
		return nil, fmt.Errorf("download %s: %w", from.upstream, explained(err))
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return nil, fmt.Errorf("download %s: parse the answer: %w", from.upstream, err)
	}
	var paths []string
	for _, stage := range stages() {
		paths = append(paths, filepath.Join(module.Dir, "kustomize", "stage", filepath.FromSlash(stage)))
	}
	return paths, nil
}

// kwokOptions are the settings that kwok takes from a file only. kwok has no limit of requests per second. By default, four
// workers play the stages of all pods, four those of all nodes, and four renew their Leases.
const kwokOptions = `apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  podPlayStageParallelism: %[1]d
  nodePlayStageParallelism: %[1]d
  nodeLeaseParallelism: %[1]d
  podsOnNodeSyncParallelism: %[1]d
`

// StartKwok starts kwok, which runs the pods of all nodes by the stages in files, with that many workers for each task, and
// waits until ready returns no error: only what kwok does shows that it works.
func (s *Server) StartKwok(ctx context.Context, workers int, stages []string, ready func(context.Context) error) error {
	options := filepath.Join(s.dir, "kwok.yaml")
	if err := os.WriteFile(options, fmt.Appendf(nil, kwokOptions, workers), 0o600); err != nil {
		return fmt.Errorf("write the options of kwok: %w", err)
	}
	// The duration of Leases is that of a kubelet, and of kwokctl: without it, kwok has none. A log of each pod would cost time.
	args := []string{"--kubeconfig=" + s.Kubeconfig, "--v=ERROR", "--manage-all-nodes=true", "--node-lease-duration-seconds=40", "--config=" + options}
	for _, stage := range stages {
		args = append(args, "--config="+stage)
	}
	p, err := s.start(Kwok, args...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return p.until(ctx, ready)
}
