package operator

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const patience = 3 * time.Minute

// TestOperatorThroughTheLifeOfASite runs the operator against a control plane, through the life of a Site.
func TestOperatorThroughTheLifeOfASite(t *testing.T) {
	log.SetLogger(zap.New(zap.WriteTo(t.Output())))
	config := controlPlane(t)
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{Definition()}}); err != nil {
		t.Fatal(err)
	}
	w := &fixture{t: t, operator: &Reconciler{}}
	w.run(config)

	site := &Site{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "home"}, Spec: SiteSpec{Page: "hello"}}
	w.must(w.Create(t.Context(), site))
	w.eventually("the Site is reported as applied", func() bool {
		w.must(w.Get(t.Context(), client.ObjectKeyFromObject(site), site))
		return site.Status.ObservedGeneration == site.Generation && len(site.Status.Conditions) == 1 && site.Spec.Replicas == 1
	})
	page, deployment := &corev1.ConfigMap{}, &appsv1.Deployment{}
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(site), page))
	w.must(w.Get(t.Context(), client.ObjectKeyFromObject(site), deployment))
	for _, o := range []client.Object{page, deployment} {
		if !metav1.IsControlledBy(o, site) {
			t.Errorf("%T has the owners %v", o, o.GetOwnerReferences())
		}
	}

	// Deleted objects are recreated, changed ones are reverted, and a change of the Site takes effect.
	w.must(w.Delete(t.Context(), deployment))
	w.eventually("the Deployment is there again", func() bool {
		again := &appsv1.Deployment{}
		return w.Get(t.Context(), client.ObjectKeyFromObject(site), again) == nil && again.UID != deployment.UID
	})
	page.Data["index.html"], page.ResourceVersion = "defaced", "" // regardless of the operator's later writes
	w.must(w.Update(t.Context(), page))
	w.eventually("the page is put right", func() bool {
		w.must(w.Get(t.Context(), client.ObjectKeyFromObject(site), page))
		return page.Data["index.html"] == "hello"
	})
	w.must(w.Patch(t.Context(), site, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":3}}`))))
	w.eventually("three replicas are asked for", func() bool {
		now := &appsv1.Deployment{}
		return w.Get(t.Context(), client.ObjectKeyFromObject(site), now) == nil && *now.Spec.Replicas == 3
	})
	if err := w.Create(t.Context(), &Site{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "empty"}}); !apierrors.IsInvalid(err) {
		t.Errorf("a Site without a page: %v", err)
	}

	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationBackground, metav1.DeletePropagationOrphan} {
		t.Run(string(policy), func(t *testing.T) {
			(&fixture{Client: w.Client, t: t, operator: w.operator}).deleteSite(policy)
		})
	}
}

// deleteSite creates a Site, deletes it, and checks the remaining objects.
func (w *fixture) deleteSite(policy metav1.DeletionPropagation) {
	t := w.t
	site := &Site{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "site-" + strings.ToLower(string(policy))}, Spec: SiteSpec{Page: "x", Replicas: 2}}
	key := client.ObjectKeyFromObject(site)
	w.must(w.Create(t.Context(), site))
	page := &corev1.ConfigMap{}
	w.eventually("the page is there", func() bool { return w.Get(t.Context(), key, page) == nil })
	w.eventually("the Site carries the finalizer", func() bool {
		return w.Get(t.Context(), key, site) == nil && len(site.Finalizers) == 1
	})
	w.must(w.Delete(t.Context(), site, client.PropagationPolicy(policy)))
	w.eventually("the Site is gone", func() bool { return apierrors.IsNotFound(w.Get(t.Context(), key, &Site{})) })
	if !w.operator.gaveBack(site.UID) {
		t.Error("it went without its domain being given back")
	}
	if policy == metav1.DeletePropagationOrphan {
		w.must(w.Get(t.Context(), key, page))
		if len(page.OwnerReferences) != 0 {
			t.Errorf("the orphaned page has the owners %v", page.OwnerReferences)
		}
		return
	}
	w.eventually("what it owned is gone", func() bool {
		return apierrors.IsNotFound(w.Get(t.Context(), key, page)) && apierrors.IsNotFound(w.Get(t.Context(), key, &appsv1.Deployment{}))
	})
}

// fixture is a client that reads the server, not a cache, and the operator that runs.
type fixture struct {
	client.Client
	t        *testing.T
	operator *Reconciler
}

// run runs the operator until the test ends.
func (w *fixture) run(config *rest.Config) {
	scheme := runtime.NewScheme()
	w.must(clientgoscheme.AddToScheme(scheme))
	w.must(AddToScheme(scheme))
	manager, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}})
	w.must(err)
	w.must(w.operator.SetUp(manager))
	w.Client, err = client.New(config, client.Options{Scheme: scheme})
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the operator: %v", err)
		}
	})
}

func (w *fixture) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *fixture) eventually(what string, is func() bool) {
	w.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline.C:
			w.t.Fatalf("not after %s: %s", patience, what)
		}
	}
}

// controlPlane returns the server that COPPICE_OPERATOR_KUBECONFIG names, or one that is
// built and started, and runs until the test ends.
func controlPlane(t *testing.T) *rest.Config {
	t.Helper()
	path := os.Getenv("COPPICE_OPERATOR_KUBECONFIG")
	if path == "" {
		path = start(t)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// start starts `coppice up` and returns its kubeconfig. It does not use internal/testing/controlplane:
// this module is an operator as others write it, and requires nothing of coppice.
func start(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	binary, kubeconfig := filepath.Join(dir, "coppice"), filepath.Join(dir, "kubeconfig")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/coppice")
	build.Dir = filepath.Join("..", "..", "..")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build coppice: %v\n%s", err, output)
	}
	up := exec.Command(binary, "up", "--ephemeral", "--secure-port=0", "--write-kubeconfig="+kubeconfig)
	up.Stderr = t.Output()
	stdout, err := up.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = up.Process.Signal(syscall.SIGTERM)
		if err := up.Wait(); err != nil {
			t.Errorf("coppice up: %v", err)
		}
	})
	if err := awaitReady(bufio.NewScanner(stdout)); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

func awaitReady(lines *bufio.Scanner) error {
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "ready") {
			return nil
		}
	}
	return fmt.Errorf("coppice up ended before it was ready")
}
