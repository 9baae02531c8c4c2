package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/testing/freeport"
)

const (
	// outage is the time that the service may be away when one of its parts is killed: on an otherwise idle machine,
	// where make replicas measures it.
	outage = 10 * time.Second
	// leastWrites is the least number of writes that each client gets acknowledged before a kill, and again after it:
	// without them there would be nothing to lose.
	leastWrites = 10
	// writers is the number of clients that write concurrently.
	writers = 8
)

// replicas is a control plane of two processes on three members of etcd.
type replicas struct {
	members []*member
	args    [2][]string
	planes  [2]*plane
}

// startReplicas starts it behind a balancer. The second replica gets the keys of the
// first one by --pki-dir.
func startReplicas(t *testing.T) *replicas {
	t.Helper()
	r := &replicas{members: startEtcd(t, 3)}
	ports := freeport.Several(t, 2)
	front := startBalancer(t, "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1])
	pki := filepath.Join(t.TempDir(), "pki")
	for i := range r.planes {
		r.args[i] = []string{
			"--data-dir", t.TempDir(), "--pki-dir", pki, "--secure-port", ports[i],
			"--etcd-servers", urlsOf(r.members), "--external-hostname", front.Addr().String(),
		}
		r.planes[i] = startPlane(t, r.args[i]...)
	}
	return r
}

// client reaches whichever replica the balancer chooses. A request that hangs is given up.
func (r *replicas) client(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", r.planes[0].kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Timeout = -1, 5*time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// writer creates, changes and deletes objects of its own, one after the other, and records the
// acknowledged writes.
type writer struct {
	client kubernetes.Interface
	prefix string

	mu    sync.Mutex
	last  time.Time               // of the last acknowledgement
	gap   time.Duration           // the longest time without one
	acked map[string]acknowledged // by name
	count int
}

// acknowledged is the acknowledged state of an object.
type acknowledged struct {
	value  int  // the last acknowledged value; the stored value is this or a later one
	gone   bool // its deletion was acknowledged
	leaves bool // its deletion was asked for, and may have happened
}

func (w *writer) write(ctx context.Context) {
	api := w.client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("%s-%d", w.prefix, i)
		object, err := api.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": "0"}}, metav1.CreateOptions{})
		if err != nil {
			continue // under another name
		}
		w.acknowledge(name, acknowledged{})
		object.Data["value"] = "1"
		if _, err := api.Update(ctx, object, metav1.UpdateOptions{}); err == nil {
			w.acknowledge(name, acknowledged{value: 1})
		}
		if i%3 > 0 {
			continue
		}
		w.note(name)
		if err := api.Delete(ctx, name, metav1.DeleteOptions{}); err == nil {
			w.acknowledge(name, acknowledged{gone: true})
		}
	}
}

func (w *writer) acknowledge(name string, a acknowledged) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.gap = max(w.gap, now.Sub(w.last))
	w.last, w.acked[name] = now, a
	w.count++
}

// note records that a deletion was requested.
func (w *writer) note(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.acked[name]
	a.leaves = true
	w.acked[name] = a
}

func (w *writer) acknowledgements() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// longest returns the longest time without an acknowledgement since its last call.
func (w *writer) longest() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	gap := max(w.gap, time.Since(w.last))
	w.gap = 0
	return gap
}

// verify compares the acknowledged writes with the stored objects.
func (w *writer) verify(t *testing.T, there map[string]string) {
	t.Helper()
	for name, a := range w.acked {
		value, ok := there[name]
		n, _ := strconv.Atoi(value)
		switch {
		case a.gone && ok:
			t.Errorf("the deletion of %s was acknowledged, and it is there", name)
		case !a.gone && !a.leaves && !ok:
			t.Errorf("%s was acknowledged, and is lost", name)
		case ok && n < a.value:
			t.Errorf("value %d of %s was acknowledged, and %d is there", a.value, name, n)
		}
	}
}

// everyOne has TestKilledReplicasLoseNothing kill all five processes: make replicas.
var everyOne = flag.Bool("replicas.all", false, "kill each of the five processes of a replicated control plane, not just one of a kind")

// TestKilledReplicasLoseNothing kills processes of a replicated control plane in turn, under load: each
// of the five, or one of a kind. Nothing that was acknowledged is lost, and the service and the collector are
// back: within seconds, where make replicas measures it.
func TestKilledReplicasLoseNothing(t *testing.T) {
	t.Parallel()
	r := startReplicas(t)
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	all := make([]*writer, writers)
	for i := range all {
		w := &writer{client: r.client(t), prefix: fmt.Sprint("w", i), last: time.Now(), acked: map[string]acknowledged{}}
		all[i] = w
		load.Go(func() { w.write(ctx) })
	}
	client := r.client(t)
	kills := map[string]func(){}
	restarts := map[string]func() error{}
	var order []string
	for i, m := range r.members {
		name := fmt.Sprint("etcd member ", i)
		order = append(order, name)
		kills[name], restarts[name] = m.kill, m.start
	}
	for i := range r.planes {
		name := fmt.Sprint("control plane ", i)
		order = append(order, name)
		kills[name] = func() { r.planes[i].kill(t) }
		restarts[name] = func() error {
			var err error
			r.planes[i], err = start(r.args[i]...)
			return err
		}
	}
	if !*everyOne {
		order = []string{order[1], order[3]}
	}
	for _, name := range order {
		writeOn(t, all)
		for _, w := range all {
			w.longest()
		}
		kills[name]()
		collected := cascade(t, client, strings.ReplaceAll(name, " ", "-"))
		writeOn(t, all)
		gap := time.Duration(0)
		for _, w := range all {
			gap = max(gap, w.longest())
		}
		t.Logf("%s killed: a client waited %s at most, the collector %s", name, gap.Round(time.Millisecond), collected.Round(time.Millisecond))
		if *everyOne && (gap > outage || collected > outage) {
			t.Errorf("%s killed: the service was away for %s, the collector for %s, want at most %s", name, gap, collected, outage)
		}
		if err := restarts[name](); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	load.Wait()
	there := contents(t, client)
	writes := 0
	for _, w := range all {
		w.verify(t, there)
		writes += w.count
	}
	t.Logf("%d writes were acknowledged", writes)
	for _, p := range r.planes {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// writeOn waits until each client has had leastWrites more acknowledgements.
func writeOn(t *testing.T, all []*writer) {
	t.Helper()
	for _, w := range all {
		before := w.acknowledgements()
		eventually.Holds(t, "client "+w.prefix+" writes", func() bool { return w.acknowledgements() >= before+leastWrites })
	}
}

// contents returns the values of all objects in the default namespace, by name.
func contents(t *testing.T, client kubernetes.Interface) map[string]string {
	t.Helper()
	there := map[string]string{}
	eventually.Agrees(t, func() string {
		list, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for i := range list.Items {
			if list.Items[i].Name != rootCAConfigMap {
				there[list.Items[i].Name] = list.Items[i].Data["value"]
			}
		}
		return ""
	})
	return there
}

// cascade deletes an owner and returns the time until its dependent was collected, including all
// retries on the way.
func cascade(t *testing.T, client kubernetes.Interface, name string) time.Duration {
	t.Helper()
	began := time.Now()
	ctx, api := t.Context(), client.CoreV1().ConfigMaps("kube-public")
	var owner *corev1.ConfigMap
	until := func(f func() error) {
		eventually.Agrees(t, func() string {
			if err := f(); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	put := func(name string, owners ...metav1.OwnerReference) {
		until(func() error {
			_, err := api.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
			owner, err = api.Get(ctx, name, metav1.GetOptions{})
			return err
		})
	}
	put(name)
	put(name+"-dependent", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: owner.UID})
	isGone := func(name string) error {
		_, err := api.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%s is not gone: %w", name, err)
	}
	until(func() error {
		_ = api.Delete(ctx, name, metav1.DeleteOptions{})
		return isGone(name)
	})
	until(func() error { return isGone(name + "-dependent") })
	return time.Since(began)
}

// TestReplicaWithOtherKeys reports why the replica cannot join, in one line.
func TestReplicaWithOtherKeys(t *testing.T) {
	t.Parallel()
	etcd := urlsOf(startEtcd(t, 1))
	first := startPlane(t, "--data-dir", t.TempDir(), "--secure-port=0", "--etcd-servers", etcd)
	dir := t.TempDir()
	_, errs, code := coppice(t, "up", "--data-dir", dir, "--secure-port=0", "--etcd-servers", etcd)
	if code != 1 || !oneLine(errs) || !strings.Contains(errs, "--pki-dir") || !strings.Contains(errs, "certificate authority") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	// With a copy of the first one's keys it can.
	copied := filepath.Join(t.TempDir(), "pki")
	if err := os.CopyFS(copied, os.DirFS(filepath.Join(filepath.Dir(first.kubeconfig), "pki"))); err != nil {
		t.Fatal(err)
	}
	second := startPlane(t, "--data-dir", dir, "--pki-dir", copied, "--secure-port=0", "--etcd-servers", etcd)
	k := kubectls(t, second)[0]
	k.run(t, "create", "configmap", "a")
	eventually.Agrees(t, func() string {
		if got := kubectls(t, first)[0].names(t, "default", "configmaps"); strings.Join(own(got), " ") != "configmap/a" {
			return fmt.Sprintf("the first replica has %v", got)
		}
		return ""
	})
}

// TestNoEtcd reports in one line which servers do not answer.
func TestNoEtcd(t *testing.T) {
	t.Parallel()
	nobody := "http://127.0.0.1:" + freeport.Find(t)
	_, errs, code := coppice(t, "up", "--data-dir", t.TempDir(), "--secure-port=0", "--etcd-servers", nobody)
	if code != 1 || !oneLine(errs) || !strings.Contains(errs, nobody+": connection refused") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}
