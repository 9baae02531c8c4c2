package realserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/coppice-dev/coppice/bench/internal/credentials"
	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

// startTimeout limits the start of one program, even on a busy machine.
const startTimeout = 3 * time.Minute

// Server is a kube-apiserver that is ready, with its etcd.
type Server struct {
	// Kubeconfig is the path of a kubeconfig with the administrator's credentials.
	Kubeconfig string

	binaries  Binaries
	dir       string
	port      int
	keys      credentials.Set
	etcd, api *process
	others    []*process
}

// Process is a running program.
type Process struct {
	Name Binary
	PID  int
}

// Start starts etcd and kube-apiserver and waits until they are ready.
func Start(ctx context.Context, binaries Binaries) (_ *Server, err error) {
	dir, err := os.MkdirTemp("", "coppice-kubernetes-*")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the servers: %w", err)
	}
	s := &Server{binaries: binaries, dir: dir, Kubeconfig: filepath.Join(dir, credentials.KubeconfigFile)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	if s.keys, err = credentials.Write(dir); err != nil {
		return nil, err
	}
	if s.port, err = freePort(ctx); err != nil {
		return nil, err
	}
	if err = s.serve(ctx); err != nil {
		return nil, err
	}
	return s, credentials.WriteKubeconfig(s.Kubeconfig, s.address(), s.keys)
}

// Restart stops kube-apiserver and etcd, starts them again on the same data, and returns
// the time from that start until they are ready.
func (s *Server) Restart(ctx context.Context) (time.Duration, error) {
	if err := errors.Join(s.api.stop(), s.etcd.stop()); err != nil {
		return 0, err
	}
	watch := stopwatch.Start()
	err := s.serve(ctx)
	return watch.Elapsed(), err
}

// Processes returns the programs that were started and have not been stopped.
func (s *Server) Processes() []Process {
	var running []Process
	for _, p := range append([]*process{s.etcd, s.api}, s.others...) {
		if p.running() {
			running = append(running, Process{p.name, p.cmd.Process.Pid})
		}
	}
	return running
}

// serve starts etcd and kube-apiserver and waits until they are ready.
func (s *Server) serve(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	socket, err := s.startEtcd(ctx)
	if err != nil {
		return err
	}
	return s.startAPIServer(ctx, socket)
}

func (s *Server) address() string {
	return "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
}

// startEtcd starts etcd on a socket in the server's directory, and returns its URL.
func (s *Server) startEtcd(ctx context.Context) (string, error) {
	client := "unix://" + filepath.Join(s.dir, "etcd.sock")
	var err error
	s.etcd, err = startProcess(s.dir, s.binaries, Etcd,
		"--data-dir="+filepath.Join(s.dir, "etcd"), "--log-level=warn",
		"--listen-client-urls="+client, "--advertise-client-urls=http://127.0.0.1:0", // no client uses it
		"--listen-peer-urls=http://127.0.0.1:0", // there are no peers
	)
	if err != nil {
		return "", err
	}
	return client, s.etcd.until(ctx, func(ctx context.Context) error {
		connection, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(s.dir, "etcd.sock"))
		if err != nil {
			return err
		}
		return connection.Close()
	})
}

// startAPIServer starts kube-apiserver. The ServiceAccount admission plug-in is off, as in
// envtest: it waits for controllers that do not run here.
func (s *Server) startAPIServer(ctx context.Context, etcd string) error {
	in := func(name string) string { return filepath.Join(s.dir, name) }
	var err error
	s.api, err = startProcess(s.dir, s.binaries, APIServer,
		"--etcd-servers="+etcd, "--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(s.port),
		"--tls-cert-file="+in(credentials.ServingFile), "--tls-private-key-file="+in(credentials.ServingKeyFile), "--client-ca-file="+in(credentials.AuthorityFile),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+in(credentials.AccountsPubFile),
		"--service-account-signing-key-file="+in(credentials.AccountsFile), "--service-cluster-ip-range=10.0.0.0/24",
		"--authorization-mode=RBAC", "--allow-privileged=true", "--disable-admission-plugins=ServiceAccount", "--cert-dir="+in("certs"),
	)
	if err != nil {
		return err
	}
	client, err := adminClient(s.keys)
	if err != nil {
		return err
	}
	return s.api.until(ctx, func(ctx context.Context) error { return ready(ctx, client, s.address()+"/readyz") })
}

// StartControllerManager starts kube-controller-manager with additional arguments, and returns a
// function that stops it. It does not wait until the controllers are ready: only their actions show
// that.
func (s *Server) StartControllerManager(args ...string) (stop func() error, err error) {
	p, err := s.start(ControllerManager, append([]string{
		"--kubeconfig=" + s.Kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--root-ca-file=" + filepath.Join(s.dir, credentials.AuthorityFile),
	}, args...)...)
	if err != nil {
		return nil, err
	}
	return p.stop, nil
}

// StartScheduler starts kube-scheduler with additional arguments. It does not wait: only a scheduled pod shows that it is ready.
func (s *Server) StartScheduler(args ...string) error {
	_, err := s.start(Scheduler, append([]string{"--kubeconfig=" + s.Kubeconfig, "--leader-elect=false", "--secure-port=0"}, args...)...)
	return err
}

// start starts another program beside kube-apiserver, which Stop stops.
func (s *Server) start(name Binary, args ...string) (*process, error) {
	p, err := startProcess(s.dir, s.binaries, name, args...)
	if err != nil {
		return nil, err
	}
	s.others = append(s.others, p)
	return p, nil
}

// Stop stops the started processes, in reverse order, and removes the directory.
func (s *Server) Stop() error {
	var failures []error
	for _, p := range slices.Backward(s.others) {
		failures = append(failures, p.stop())
	}
	failures = append(failures, s.api.stop(), s.etcd.stop(), os.RemoveAll(s.dir))
	return errors.Join(failures...)
}

// freePort returns a port that was free a moment ago: kube-apiserver cannot choose one itself. It is below the system's
// ephemeral ports, so no connection can take it meanwhile.
func freePort(ctx context.Context) (int, error) {
	const attempts = 100
	var last error
	for range attempts {
		port := 15_000 + rand.IntN(17_000)
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, listener.Close()
		}
		last = err
	}
	return 0, fmt.Errorf("find a free port: %w", last)
}

func adminClient(keys credentials.Set) (*http.Client, error) {
	certificate, err := tls.X509KeyPair(keys.Admin.Certificate, keys.Admin.Key)
	if err != nil {
		return nil, fmt.Errorf("load the administrator's certificate: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(keys.Authority)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}}, nil
}

func ready(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return err
}
