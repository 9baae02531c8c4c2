package containers

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	remote "k8s.io/cri-client/pkg"
)

// image is built here, from a static busybox: no registry is needed. otherImage is another name of it.
const (
	image      = "coppice.test/busybox:1"
	otherImage = "coppice.test/busybox:2"
)

// trial is the namespace of the sandboxes that probe what works on this machine.
const trial = "trial"

// applets returns the commands that the image has besides busybox itself.
func applets() []string {
	return []string{"cat", "date", "echo", "false", "hostname", "httpd", "ls", "mkdir", "mv", "nc", "rm", "sh", "sleep", "tar", "touch", "true", "wget"}
}

// daemon is a containerd of this test run only.
type daemon struct {
	dir     string
	socket  string
	ctr     string
	command *exec.Cmd
	log     *os.File
	runtime internalapi.RuntimeService
	// network is true if pods can have a network of their own.
	network bool
	why     string // not
}

// tools returns the programs that a containerd needs, or the missing one.
func tools() (paths map[string]string, missing []string) {
	paths = map[string]string{}
	find := func(name string, places ...string) {
		for _, place := range append([]string{name}, places...) {
			if path, err := exec.LookPath(place); err == nil {
				paths[name] = path
				return
			}
		}
		missing = append(missing, name)
	}
	find("containerd")
	find("ctr")
	find("kubectl")
	find("runc", "/usr/sbin/runc", "/usr/local/sbin/runc")
	find("loopback", "/usr/lib/cni/loopback", "/opt/cni/bin/loopback")
	find("ptp", "/usr/lib/cni/ptp", "/opt/cni/bin/ptp")
	find("busybox", "/bin/busybox")
	if path := paths["busybox"]; path != "" && !isStatic(path) {
		missing = append(missing, "a static busybox")
	}
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	return paths, missing
}

// isStatic reports whether a program needs no shared libraries.
func isStatic(path string) bool {
	file, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	return !slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// startDaemon starts a containerd, loads the image, and probes the network.
func startDaemon(dir string, paths map[string]string) (*daemon, error) {
	d := &daemon{dir: dir, socket: filepath.Join(dir, "c.sock"), ctr: paths["ctr"]}
	config, err := d.configure(filepath.Dir(paths["loopback"]))
	if err != nil {
		return nil, err
	}
	if d.log, err = os.Create(filepath.Join(dir, "containerd.log")); err != nil {
		return nil, err
	}
	d.command = exec.Command(paths["containerd"], "--config", config)
	d.command.Stdout, d.command.Stderr = d.log, d.log
	d.command.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":"+filepath.Dir(paths["runc"]))
	if err := d.command.Start(); err != nil {
		return nil, err
	}
	if err := d.connect(); err != nil {
		return d, err
	}
	archive := filepath.Join(dir, "image.tar")
	if err := writeImage(archive, paths["busybox"]); err != nil {
		return d, err
	}
	if out, err := exec.Command(d.ctr, "-a", d.socket, "-n", "k8s.io", "images", "import", "--snapshotter", "native", archive).CombinedOutput(); err != nil {
		return d, fmt.Errorf("import the image: %w: %s", err, out)
	}
	return d, d.tryNetworks()
}

// configure writes the configuration, including the pods' network: a pair of devices each, no
// bridge, no packet filter.
func (d *daemon) configure(plugins string) (path string, err error) {
	net := filepath.Join(d.dir, "net")
	if err := os.Mkdir(net, 0o700); err != nil {
		return "", err
	}
	list := fmt.Sprintf(`{"cniVersion":"0.4.0","name":"coppice-test","plugins":[{"type":"ptp","ipam":{"type":"host-local",
		"dataDir":%q,"ranges":[[{"subnet":"10.213.%d.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}`, filepath.Join(d.dir, "ipam"), os.Getpid()%256)
	if err := os.WriteFile(filepath.Join(net, "10-ptp.conflist"), []byte(list), 0o600); err != nil {
		return "", err
	}
	config := fmt.Sprintf(`version = 2
root = %q
state = %q
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
`, filepath.Join(d.dir, "root"), filepath.Join(d.dir, "state"), d.socket, image, plugins, net)
	path = filepath.Join(d.dir, "config.toml")
	return path, os.WriteFile(path, []byte(config), 0o600)
}

// connect waits until containerd answers.
func (d *daemon) connect() error {
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		client, err := remote.NewRemoteRuntimeServiceBuilder().WithEndpoint("unix://" + d.socket).WithConnectionTimeout(patience).Build(ctx)
		cancel()
		if err == nil {
			d.runtime = client
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("containerd does not answer: %w: %s", err, d.said())
		}
		<-tick.C
	}
}

// said returns the last part of containerd's log.
func (d *daemon) said() string {
	text, err := os.ReadFile(d.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// tryNetworks probes whether a sandbox can have a network of its own. If it can have none at all,
// no test can run.
func (d *daemon) tryNetworks() error {
	own := d.trySandbox("own", runtimeapi.NamespaceMode_POD)
	d.network = own == nil
	if own == nil {
		return nil
	}
	d.why = own.Error()
	if err := d.trySandbox("host", runtimeapi.NamespaceMode_NODE); err != nil {
		return fmt.Errorf("no sandbox can be made here: %w: %s", err, d.said())
	}
	return nil
}

func (d *daemon) trySandbox(name string, network runtimeapi.NamespaceMode) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	id, err := d.runtime.RunPodSandbox(ctx, &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Uid: name, Namespace: trial}, LogDirectory: d.dir,
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: network, Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}, "")
	if err != nil {
		return err
	}
	return errors.Join(d.runtime.StopPodSandbox(ctx, id), d.runtime.RemovePodSandbox(ctx, id))
}

// list returns a list of ctr: containers, tasks.
func (d *daemon) list(what string) ([]string, error) {
	out, err := exec.Command(d.ctr, "-a", d.socket, "-n", "k8s.io", what, "ls", "-q").Output()
	return strings.Fields(string(out)), err
}

// stop ends everything that was started below this containerd, itself, and its mounts.
func (d *daemon) stop() error {
	var failed []error
	if d.runtime != nil {
		failed = append(failed, d.removeAll())
	}
	if d.command != nil && d.command.Process != nil {
		_ = d.command.Process.Signal(syscall.SIGTERM)
		ended := make(chan struct{})
		go func() { _ = d.command.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(patience):
			_ = d.command.Process.Kill()
			<-ended
		}
	}
	for _, pid := range d.shims() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	mounts, err := mountsWith(d.dir)
	slices.Reverse(mounts) // the last one is on top
	for _, point := range mounts {
		failed = append(failed, unix.Unmount(point, unix.MNT_DETACH))
	}
	return errors.Join(append(failed, err)...)
}

func (d *daemon) removeAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	sandboxes, err := d.runtime.ListPodSandbox(ctx, nil)
	failed := []error{err}
	for _, s := range sandboxes {
		err := errors.Join(d.runtime.StopPodSandbox(ctx, s.Id), d.runtime.RemovePodSandbox(ctx, s.Id))
		if s.Metadata.Namespace != trial { // what could not get a network may not be able to give it back
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// shims returns the processes that containerd has left, recognized by its socket.
func (d *daemon) shims() []int {
	entries, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var pids []int
	for _, path := range entries {
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte("containerd-shim")) || !bytes.Contains(text, []byte(d.socket)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// mountsWith returns the mount points whose path contains a text, in the order in which they were
// mounted.
func mountsWith(text string) ([]string, error) {
	table, err := os.ReadFile("/proc/self/mounts")
	var points []string
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.Contains(fields[1], text) {
			points = append(points, fields[1])
		}
	}
	return points, err
}

// writeImage writes an image of busybox, as docker save does.
func writeImage(path, busybox string) error {
	program, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	var layer bytes.Buffer
	files := tar.NewWriter(&layer)
	add := func(h tar.Header, data []byte) {
		h.Size = int64(len(data))
		err = errors.Join(err, files.WriteHeader(&h))
		_, wrong := files.Write(data)
		err = errors.Join(err, wrong)
	}
	for _, dir := range []string{"bin/", "etc/", "proc/", "sys/", "dev/", "tmp/"} {
		add(tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	add(tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, program)
	add(tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("root:x:0:0:root:/:/bin/sh\n"))
	add(tar.Header{Name: "etc/group", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("root:x:0:\nimage:x:50:root\n"))
	for _, name := range applets() {
		add(tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox", Mode: 0o777}, nil)
	}
	if err = errors.Join(err, files.Close()); err != nil {
		return err
	}
	return writeArchive(path, layer.Bytes())
}

func writeArchive(path string, layer []byte) error {
	digest := fmt.Sprintf("%x", sha256.Sum256(layer))
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Cmd": []string{"/bin/sleep", "1000000"}, "Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest}},
	})
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%x.json", sha256.Sum256(config))
	manifest, err := json.Marshal([]map[string]any{{"Config": name, "RepoTags": []string{image, otherImage}, "Layers": []string{digest + "/layer.tar"}}})
	if err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(file)
	for _, part := range []struct {
		name string
		data []byte
	}{{name, config}, {digest + "/layer.tar", layer}, {"manifest.json", manifest}} {
		err = errors.Join(err, archive.WriteHeader(&tar.Header{Name: part.name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(part.data))}))
		_, wrong := archive.Write(part.data)
		err = errors.Join(err, wrong)
	}
	return errors.Join(err, archive.Close(), file.Close())
}
