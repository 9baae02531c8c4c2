package system

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/node/agent/nodeconfig"
	"github.com/coppice-dev/coppice/internal/testing/transcript"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

// outsideOptions returns options of a control plane without nodes, for nodes in other processes.
func outsideOptions(t *testing.T, names ...string) Options {
	t.Helper()
	o := ephemeral(t)
	o.WriteNodeKubeconfigs = map[string]string{}
	for _, name := range names {
		o.WriteNodeKubeconfigs[name] = filepath.Join(t.TempDir(), name)
	}
	return o
}

func nodeOptions(config *rest.Config) NodeOptions {
	loopback := net.IPv4(127, 0, 0, 1)
	return NodeOptions{Config: config, Runtime: nodeconfig.Simulated, Address: loopback, Bind: loopback, Version: version.Kubernetes(), Log: slog.New(slog.DiscardHandler)}
}

// withNodeOutside runs the agent of a node, as coppice node does, while use runs.
func withNodeOutside(ctx context.Context, kubeconfig string, change func(*NodeOptions), use func(context.Context) error) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	o := nodeOptions(config)
	if change != nil {
		change(&o)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	used := errors.New("not registered")
	err = RunNode(ctx, o, func(string) {
		go func() {
			defer stop()
			used = use(ctx)
		}()
	})
	return errors.Join(err, used)
}

// readLog reads a log as kubectl does, with decoded errors.
func readLog(ctx context.Context, client kubernetes.Interface, pod string, o *corev1.PodLogOptions) (string, error) {
	stream, err := client.CoreV1().Pods("default").GetLogs(pod, o).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	text, err := io.ReadAll(stream)
	return string(text), err
}

// runsOn creates a pod on a node and waits until it runs.
func runsOn(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	if _, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	return becomesTrue(ctx, "pod "+pod.Name+" runs", func(ctx context.Context) (bool, error) {
		pod, err := client.CoreV1().Pods("default").Get(ctx, pod.Name, metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning, err
	})
}

// TestLogsOfNodeOutside checks that logs of pods on a node in another process are read like those of nodes
// in the server's process, with the same errors, and only from the node itself, whichever port it reports.
func TestLogsOfNodeOutside(t *testing.T) {
	o := outsideOptions(t, "worker", "other")
	var address string
	runWith(t, o, func(ctx context.Context, client kubernetes.Interface) error {
		err := withNodeOutside(ctx, o.WriteNodeKubeconfigs["worker"], nil, func(ctx context.Context) error {
			waiting := boundPod("waiting", "worker")
			waiting.Annotations = map[string]string{"simulated.coppice.dev/fail-pull": "true"}
			if _, err := client.CoreV1().Pods("default").Create(ctx, waiting, metav1.CreateOptions{}); err != nil {
				return err
			}
			if err := runsOn(ctx, client, boundPod("web", "worker")); err != nil {
				return err
			}
			const line = "simulated: container c started, attempt 0\n"
			text, err := readLog(ctx, client, "web", &corev1.PodLogOptions{Follow: true, TailLines: new(int64(1)), LimitBytes: new(int64(len(line)))})
			if err != nil || text != line {
				return fmt.Errorf("log %q, %w", text, err)
			}
			for question, o := range map[string]corev1.PodLogOptions{
				"is waiting to start: ErrImagePull": {},
				"container other is not valid":      {Container: "other"},
				"previous terminated container":     {Previous: true},
			} {
				pod := "web"
				if strings.Contains(question, "waiting") {
					pod = "waiting"
				}
				if err := refusedWith(ctx, client, pod, o, question, apierrors.IsBadRequest); err != nil {
					return err
				}
			}
			return withNodeOutside(ctx, o.WriteNodeKubeconfigs["other"], nil, func(ctx context.Context) error {
				return posesAs(ctx, client, "worker", "other", &address)
			})
		})
		if err != nil {
			return err
		}
		return refusedWith(ctx, client, "web", corev1.PodLogOptions{}, "node worker, which does not answer at "+address, apierrors.IsServiceUnavailable)
	})
}

// refusedWith requests a log that is not available, and checks the error.
func refusedWith(ctx context.Context, client kubernetes.Interface, pod string, o corev1.PodLogOptions, says string, is func(error) bool) error {
	err := becomesTrue(ctx, "the refusal "+says, func(ctx context.Context) (bool, error) {
		_, err := readLog(ctx, client, pod, &o)
		return is(err) && strings.Contains(err.Error(), says), nil
	})
	if err != nil {
		text, asked := readLog(ctx, client, pod, &o)
		return fmt.Errorf("%w: the log of %s is %q, %w", err, pod, text, asked)
	}
	return nil
}

// posesAs makes a node report the address and port of another server. The API server does not trust that
// server, and reads the log again when the node serves it. address is the node's.
func posesAs(ctx context.Context, client kubernetes.Interface, node, other string, address *string) error {
	ports := map[string]int32{}
	for _, name := range []string{node, other} {
		n, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ports[name] = n.Status.DaemonEndpoints.KubeletEndpoint.Port
		if i := slices.IndexFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalIP }); ports[name] == 0 || i < 0 || n.Status.Addresses[i].Address != "127.0.0.1" {
			return fmt.Errorf("node %s serves at %+v, port %d", name, n.Status.Addresses, ports[name])
		}
	}
	for _, at := range []struct {
		port int32
		says string
	}{
		{ports[other], "certificate is valid for system:node:other, not system:node:worker"},
		{ports[node], ""},
	} {
		patch := fmt.Sprintf(`{"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, at.port)
		if _, err := client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
		text, err := readLog(ctx, client, "web", &corev1.PodLogOptions{})
		switch {
		case at.says == "" && err != nil:
			return err
		case at.says != "" && (!apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), at.says)):
			return fmt.Errorf("at port %d the log is %q, %w", at.port, text, err)
		}
	}
	*address = fmt.Sprintf("127.0.0.1:%d", ports[node])
	return nil
}

// TestNodeThatServesNoLogs checks that an agent that the server could not authenticate, or could not reach,
// serves no logs, logs the reason, and runs pods nevertheless. An agent whose configured port is in use
// does not start.
func TestNodeThatServesNoLogs(t *testing.T) {
	o := outsideOptions(t, "worker")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	runWith(t, o, func(ctx context.Context, client kubernetes.Interface) error {
		log := &transcript.Transcript{}
		worker := o.WriteNodeKubeconfigs["worker"]
		err := withNodeOutside(ctx, worker, func(o *NodeOptions) {
			o.Address, o.Log = net.IPv4(192, 0, 2, 7), slog.New(slog.NewTextHandler(log, nil))
		}, func(ctx context.Context) error {
			if err := runsOn(ctx, client, boundPod("web", "worker")); err != nil {
				return err
			}
			return refusedWith(ctx, client, "web", corev1.PodLogOptions{}, "node worker, which runs in another process and serves neither logs nor streams", apierrors.IsServiceUnavailable)
		})
		if err != nil {
			return err
		}
		if !strings.Contains(log.String(), "logs and streams are not served") || !strings.Contains(log.String(), "127.0.0.1, which they would be served on, is not the address of the node, 192.0.2.7") {
			return errors.New("the agent does not say why it serves no logs")
		}
		err = withNodeOutside(ctx, worker, func(o *NodeOptions) {
			_, port, _ := net.SplitHostPort(taken.Addr().String())
			_, _ = fmt.Sscan(port, &o.Port)
		}, func(context.Context) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "choose another port with --port") {
			return fmt.Errorf("with a port that is taken: %w", err)
		}
		return nil
	})
}

// identify loads the credential of a configuration, and returns the CAs of accepted clients.
func identify(config *rest.Config, node string) (*x509.CertPool, error) {
	credential, err := loadCredential(NodeOptions{Config: config})
	if err != nil {
		return nil, err
	}
	return clientAuthorities(config, credential, node)
}

// A node accepts clients with a certificate of the CA that has signed its own, and of no other CA in its
// kubeconfig.
func TestWhomToAnswer(t *testing.T) {
	load := func() *auth.Authority {
		authority, err := auth.LoadAuthority(t.TempDir(), time.Now)
		if err != nil {
			t.Fatal(err)
		}
		return authority
	}
	own, other := load(), load()
	configOf := func(issue func() (auth.Pair, error), authorities ...*auth.Authority) *rest.Config {
		pair, err := issue()
		if err != nil {
			t.Fatal(err)
		}
		c := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: pair.Certificate, KeyData: pair.Key}}
		for _, a := range authorities {
			c.CAData = append(c.CAData, a.Certificate()...)
		}
		return c
	}
	worker := func() (auth.Pair, error) { return own.Node("worker") }
	for name, test := range map[string]struct {
		config *rest.Config
		says   string
	}{
		"a token":               {&rest.Config{BearerToken: "x", TLSClientConfig: rest.TLSClientConfig{CAData: own.Certificate()}}, "no client certificate"},
		"no authority":          {configOf(worker), "no certificate authority"},
		"another authority":     {configOf(worker, other), "has not signed the client certificate"},
		"an administrator":      {configOf(own.Admin, own), "is not one that node worker can serve with"},
		"another node":          {configOf(func() (auth.Pair, error) { return own.Node("other") }, own), "is not one that node worker can serve with"},
		"one that cannot serve": {configOf(func() (auth.Pair, error) { return own.Component("system:node:worker") }, own), "is not one that node worker can serve with"},
	} {
		if _, err := identify(test.config, "worker"); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
	authorities, err := identify(configOf(worker, other, own), "worker")
	if err != nil {
		t.Fatal(err)
	}
	for authority, trusted := range map[*auth.Authority]bool{own: true, other: false} {
		pair, err := authority.Component(auth.LogReaderUser)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(bytes.TrimSpace(pair.Certificate))
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		_, err = certificate.Verify(x509.VerifyOptions{Roots: authorities, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if (err == nil) != trusted {
			t.Errorf("trusted %t, %v", trusted, err)
		}
	}
}
