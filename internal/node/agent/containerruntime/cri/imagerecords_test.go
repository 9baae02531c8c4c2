package cri

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

const (
	private  = "quay.io/a/private:1"
	password = "s3cret-of-ann"
)

// tenants is an API in which namespaces have pull secrets.
type tenants struct {
	*cluster

	passwords map[types.NamespacedName]string
}

// Secret implements Objects.
func (a *tenants) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	password, found := a.passwords[types.NamespacedName{Namespace: namespace, Name: name}]
	if !found {
		return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name)}, Type: corev1.SecretTypeDockercfg,
		Data: map[string][]byte{corev1.DockerConfigKey: []byte(`{"quay.io":{"username":"ann","password":"` + password + `"}}`)},
	}, nil
}

// vault is an image service whose registry wants a password for private images. Each image has an ID of its own.
type vault struct {
	internalapi.ImageManagerService

	pulls  int
	late   bool // a pull fails after it has brought the image
	silent bool // ImageStatus fails
}

// PullImage implements internalapi.ImageManagerService.
func (v *vault) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	v.pulls++
	if strings.Contains(image.GetImage(), "private") && auth.GetPassword() != password {
		return "", errors.New("unauthorized")
	}
	id, err := v.ImageManagerService.PullImage(ctx, image, auth, sandbox)
	if v.late {
		return "", context.Canceled
	}
	return id, err
}

// ImageStatus implements internalapi.ImageManagerService.
func (v *vault) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	if v.silent {
		return nil, errors.New("no answer")
	}
	return v.ImageManagerService.ImageStatus(ctx, image, verbose)
}

// shared is a node that tenants share.
type shared struct {
	t       *testing.T
	dir     string
	api     *tenants
	images  *vault
	f       *fake
	clock   *testclock.FakeClock
	runtime *Runtime
	pods    int
}

func newShared(t *testing.T) *shared {
	t.Helper()
	f := newFake()
	n := &shared{
		t: t, dir: t.TempDir(), f: f, clock: testclock.NewFakeClock(time.Unix(1_700_000_000, 0)), images: &vault{ImageManagerService: f.images},
		api: &tenants{cluster: &cluster{}, passwords: map[types.NamespacedName]string{{Namespace: "ann", Name: "pull"}: password}},
	}
	n.restart()
	return n
}

// restart starts another agent.
func (n *shared) restart() {
	n.t.Helper()
	r, err := open(n.t.Context(), Config{Dir: n.dir, Objects: n.api, Clock: n.clock, Logger: slog.New(slog.DiscardHandler)}, services{n.f, n.images})
	if err != nil {
		n.t.Fatal(err)
	}
	n.runtime = r
}

// start starts a pod of a namespace, and returns the number of pulls.
func (n *shared) start(namespace, image string, policy corev1.PullPolicy) (pulls int, err error) {
	n.t.Helper()
	n.pods++
	pod := aPod()
	pod.Namespace, pod.UID = namespace, types.UID("u-"+string(rune('a'+n.pods)))
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
	pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = image, policy
	mustDo(n.t, n.runtime, pod, lifecycle.CreateSandbox{})
	before := n.images.pulls
	err = do(n.t, n.runtime, pod, lifecycle.Start{Container: "c"})
	return n.images.pulls - before, err
}

// endPulls lets the time pass in which the runtime may finish a pull, and checks that no pull is kept then.
func (n *shared) endPulls() {
	n.t.Helper()
	n.clock.Step(oldestPull)
	n.runtime.pruneImages(n.t.Context())
	if left, err := os.ReadDir(n.runtime.records.pulls()); err != nil || len(left) != 0 {
		n.t.Errorf("pulls %v, %v", left, err)
	}
}

// want starts a pod, and checks the number of pulls and the reason of the error.
func (n *shared) want(when, namespace, image string, policy corev1.PullPolicy, pulls int, reason string) {
	n.t.Helper()
	got, err := n.start(namespace, image, policy)
	why, _ := errors.AsType[lifecycle.StartError](err)
	if got != pulls || why.Reason != reason || (err == nil) != (reason == "") {
		n.t.Errorf("%s: %d pulls, %v (%s); want %d pulls, %q", when, got, err, why.Reason, pulls, reason)
	}
}

// TestPrivateImageNeedsItsCredentials checks that a pod without the credentials with which an image was pulled does not
// get it from the node, whatever its pull policy is, also after a restart of the agent.
func TestPrivateImageNeedsItsCredentials(t *testing.T) {
	n := newShared(t)
	n.want("the first", "ann", private, corev1.PullIfNotPresent, 1, "")
	for _, when := range []string{"the same agent", "the next agent"} {
		n.want(when, "ann", private, corev1.PullIfNotPresent, 0, "")
		n.want(when, "ann", private, corev1.PullNever, 0, "")
		n.want(when, "bob", private, corev1.PullIfNotPresent, 1, "ErrImagePull")
		n.want(when, "bob", private, corev1.PullAlways, 1, "ErrImagePull")
		n.want(when, "bob", private, corev1.PullNever, 0, "ErrImageNeverPull")
		n.restart()
	}
	if _, err := n.start("bob", private, corev1.PullNever); err == nil || !strings.Contains(err.Error(), "is present but not verified") {
		t.Errorf("%v", err)
	}
	n.api.passwords[types.NamespacedName{Namespace: "ann", Name: "pull"}] = "another"
	n.want("the same secret with another password", "ann", private, corev1.PullIfNotPresent, 0, "")
	n.api.passwords[types.NamespacedName{Namespace: "cid", Name: "pull"}] = password
	n.want("another secret with the same password", "cid", private, corev1.PullIfNotPresent, 0, "")
	n.api.passwords[types.NamespacedName{Namespace: "eve", Name: "pull"}] = "guessed"
	n.want("another secret with another password", "eve", private, corev1.PullIfNotPresent, 1, "ErrImagePull")
}

// TestImagesForEverybody checks that any pod may use an image that was pulled anonymously, or that the agent has not
// pulled. A pull that brings the same image again changes nothing.
func TestImagesForEverybody(t *testing.T) {
	n := newShared(t)
	n.want("public", "bob", "gcr.io/public:1", corev1.PullIfNotPresent, 1, "")
	n.want("public", "ann", "gcr.io/public:1", corev1.PullNever, 0, "")
	n.f.images.SetFakeImages([]string{private})
	n.restart()
	n.want("preloaded", "bob", private, corev1.PullNever, 0, "")
	n.want("preloaded", "bob", private, corev1.PullIfNotPresent, 0, "")
	n.want("preloaded, pulled again", "ann", private, corev1.PullAlways, 1, "")
	n.want("preloaded, not pulled again", "bob", private, corev1.PullAlways, 1, "ErrImagePull")
	n.restart()
	n.want("preloaded, after pulls", "bob", private, corev1.PullNever, 0, "")
}

// TestSecondTenantIsAdded checks that each pull adds to those who may use an image.
func TestSecondTenantIsAdded(t *testing.T) {
	n := newShared(t)
	n.want("ann", "ann", "quay.io/a/open:1", corev1.PullIfNotPresent, 1, "")
	n.api.passwords[types.NamespacedName{Namespace: "cid", Name: "pull"}] = "of cid"
	n.want("cid", "cid", "quay.io/a/open:1", corev1.PullIfNotPresent, 1, "")
	for _, namespace := range []string{"ann", "cid"} {
		n.want("again", namespace, "quay.io/a/open:1", corev1.PullIfNotPresent, 0, "")
	}
	n.want("bob, anonymously", "bob", "quay.io/a/open:1", corev1.PullIfNotPresent, 1, "")
	n.want("bob again", "bob", "quay.io/a/open:1", corev1.PullNever, 0, "")
}

// TestInterruptedPullIsRemembered checks that an image whose pull was interrupted before its record was written does not
// look like one that was there before.
func TestInterruptedPullIsRemembered(t *testing.T) {
	for name, test := range map[string]func(n *shared){
		"killed": func(n *shared) {
			if _, err := n.runtime.records.begin(private, "ann", imageList{}); err != nil {
				t.Fatal(err)
			}
			n.f.images.SetFakeImages([]string{private})
		},
		"cancelled too late": func(n *shared) {
			n.images.late = true
			if _, err := n.start("ann", private, corev1.PullIfNotPresent); err == nil {
				t.Error("no error")
			}
			n.images.late = false
		},
		"cancelled, and the runtime does not answer": func(n *shared) {
			n.images.late, n.images.silent = true, true
			if _, err := n.runtime.pullFor(t.Context(), aPod(), &corev1.Container{Image: private}, pull{image: private, secrets: n.runtime.credentials(t.Context(), podOf("ann"), private)}); err == nil {
				t.Error("no error")
			}
			n.images.late, n.images.silent = false, false
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newShared(t)
			n.t = t
			test(n)
			for range 2 {
				n.want("before", "bob", private, corev1.PullNever, 0, "ErrImageNeverPull")
				n.restart()
			}
			n.want("restarted", "bob", private, corev1.PullIfNotPresent, 1, "ErrImagePull")
			n.want("with credentials", "ann", private, corev1.PullIfNotPresent, 1, "")
			n.want("with credentials again", "ann", private, corev1.PullIfNotPresent, 0, "")
			n.want("without", "bob", private, corev1.PullNever, 0, "ErrImageNeverPull")
			n.endPulls()
			n.want("without, later", "bob", private, corev1.PullNever, 0, "ErrImageNeverPull")
		})
	}
}

// TestEndedPullIsNotKept checks that a pull whose end the agent has seen does not count any more, also if another one of the
// same image is under way.
func TestEndedPullIsNotKept(t *testing.T) {
	n, s := withStore(t, map[string]string{coredns: "id-dns"})
	kept := func(when string, want int) {
		t.Helper()
		if got, err := os.ReadDir(n.runtime.records.pulls()); err != nil || len(got) != want || len(n.runtime.records.intents) != want {
			t.Errorf("%s: pulls %v, %v, want %d", when, got, err, want)
		}
	}
	n.want("good", "ann", private, corev1.PullIfNotPresent, 1, "")
	n.want("refused", "bob", private, corev1.PullIfNotPresent, 1, "ErrImagePull")
	n.want("of an image that was there before", "ann", coredns, corev1.PullAlways, 1, "")
	kept("all have ended", 0)

	end := hung(t, n, s, private, func() {})
	n.want("another one", "ann", private, corev1.PullAlways, 1, "")
	kept("one is under way", 1)
	n.clock.Step(2 * oldestPull)
	n.runtime.pruneImages(t.Context())
	kept("it takes long", 1)
	end(nil)
	kept("it has ended", 0)

	s.images, s.registry[private] = nil, "id-cancelled"
	ctx, cancel := context.WithCancel(t.Context())
	s.pulling = func(image string) error {
		s.pull(image)
		cancel()
		return nil
	}
	if err := <-n.pullOf(ctx, private); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled pull ends with %v", err)
	}
	kept("cancelled after its end", 0)
	n.want("cancelled after its end", "ann", private, corev1.PullNever, 0, "")
}

// podOf returns a pod of a namespace with its pull secret.
func podOf(namespace string) *corev1.Pod {
	pod := aPod()
	pod.Namespace, pod.Spec.ImagePullSecrets = namespace, []corev1.LocalObjectReference{{Name: "pull"}}
	return pod
}

// TestRecordsHaveNoCredentials checks the modes of the records, and that they do not have the credentials.
func TestRecordsHaveNoCredentials(t *testing.T) {
	n := newShared(t)
	n.want("pulled", "ann", private, corev1.PullIfNotPresent, 1, "")
	if _, err := n.runtime.records.begin("quay.io/other", "ann", imageList{images: []*runtimeapi.Image{{Id: "id-old", RepoTags: []string{"quay.io/a/old:1"}}}}); err != nil {
		t.Fatal(err)
	}
	files := 0
	err := filepath.WalkDir(n.runtime.store.images(), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[e.IsDir()]; info.Mode().Perm() != want {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		if e.IsDir() {
			return nil
		}
		files++
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), password) || strings.Contains(string(text), "YW5u") {
			t.Errorf("%s: %s", path, text)
		}
		return err
	})
	if err != nil || files != 3 {
		t.Errorf("%d files, %v", files, err)
	}
}

// TestRecordsOfMissingImagesAreRemoved checks that records end with their images, unless the image was pulled after the
// images were listed. So do the records of old pulls, which nobody ends.
func TestRecordsOfMissingImagesAreRemoved(t *testing.T) {
	n := newShared(t)
	n.want("pulled", "ann", private, corev1.PullIfNotPresent, 1, "")
	count := func() int {
		t.Helper()
		all, err := os.ReadDir(n.runtime.records.pulled())
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	n.runtime.pruneImages(t.Context())
	if got := count(); got != 1 {
		t.Errorf("%d records of 1 image", got)
	}
	none := func() ([]*runtimeapi.Image, error) {
		return nil, n.runtime.records.add(namedPull{image: "quay.io/a/new"}, "new", nil, nil)
	}
	if err := n.runtime.records.prune(none, n.clock.Now()); err != nil || count() != 1 {
		t.Errorf("%d records: %v", count(), err)
	}
	n.f.images.SetFakeImages(nil)
	n.runtime.pruneImages(t.Context())
	if got := count(); got != 0 || len(n.runtime.records.written) != 0 {
		t.Errorf("%d records, and %d in memory, of no image", got, len(n.runtime.records.written))
	}
	refused := errors.New("no list")
	if err := n.runtime.records.prune(func() ([]*runtimeapi.Image, error) { return nil, refused }, n.clock.Now()); !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}

	if _, err := n.runtime.records.begin(private, "ann", imageList{}); err != nil {
		t.Fatal(err)
	}
	n.restart()
	pulls := func(age time.Duration) int {
		t.Helper()
		if err := n.runtime.records.prune(func() ([]*runtimeapi.Image, error) { return nil, nil }, n.clock.Now().Add(age)); err != nil {
			t.Fatal(err)
		}
		all, err := os.ReadDir(n.runtime.records.pulls())
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if young, old := pulls(0), pulls(oldestPull+time.Minute); young != 1 || old != 0 {
		t.Errorf("%d young and %d old pulls", young, old)
	}
}

// TestBrokenRecordAllowsNobody checks that an image whose record cannot be read must be pulled, which writes it anew.
func TestBrokenRecordAllowsNobody(t *testing.T) {
	n := newShared(t)
	n.want("pulled", "ann", private, corev1.PullIfNotPresent, 1, "")
	if err := os.WriteFile(recordPath(n.runtime.records.pulled(), private), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.want("broken", "bob", private, corev1.PullNever, 0, "ErrImageNeverPull")
	n.want("broken", "ann", private, corev1.PullIfNotPresent, 1, "")
	n.want("mended", "ann", private, corev1.PullNever, 0, "")
}
