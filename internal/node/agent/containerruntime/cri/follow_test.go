package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// cluster is an API with these objects, in the namespace of aPod. It counts requests.
type cluster struct {
	settings map[string]string // the ConfigMap settings; nil: it does not exist
	keys     map[string][]byte // the Secret keys
	kind     corev1.SecretType // of keys
	services []corev1.Service
	refuses  error // the error for requests for tokens
	clock    *testclock.FakeClock
	requests int
	issued   []authenticationv1.TokenRequest
	bundles  []certificatesv1.ClusterTrustBundle
	asked    []*certificatesv1.PodCertificateRequest
}

func (w *cluster) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	w.requests++
	if name != "settings" || w.settings == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: w.settings}, nil
}

func (w *cluster) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	w.requests++
	if name != "keys" || w.keys == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: w.kind, Data: w.keys}, nil
}

func (w *cluster) Server() string { return "https://127.0.0.1:6443" }

func (w *cluster) Services(context.Context, string) ([]corev1.Service, error) { return w.services, nil }

func (w *cluster) Token(_ context.Context, namespace, account string, r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	if w.refuses != nil {
		return nil, w.refuses
	}
	w.issued = append(w.issued, *r)
	r.Status.Token = fmt.Sprintf("token %d of %s/%s for %v", len(w.issued), namespace, account, r.Spec.Audiences)
	r.Status.ExpirationTimestamp = metav1.NewTime(w.clock.Now().Add(time.Duration(*r.Spec.ExpirationSeconds) * time.Second))
	return r, nil
}

// inCluster returns a runtime with the objects of a cluster.
func inCluster(t *testing.T) (*cluster, *Runtime) {
	t.Helper()
	w := &cluster{settings: map[string]string{"a": "1"}, keys: map[string][]byte{"k": []byte("s3")}, clock: testclock.NewFakeClock(time.Unix(1_700_000_000, 0))}
	r := newFake().open(t, t.TempDir())
	r.objects, r.clock = w, w.clock
	r.issuers = issuers{newTokens(w, w.clock), newCertificates(w, w.clock)}
	return w, r
}

func tokenVolume(seconds int64) corev1.Volume {
	return corev1.Volume{Name: "all", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "vault", ExpirationSeconds: &seconds}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: ref("settings")}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
		}}},
	}}}}
}

// TestVolumesFollowTheirObjects checks that volumes follow their objects and the pod while the pod runs. If an object cannot be read, its
// volumes stay as they are.
func TestVolumesFollowTheirObjects(t *testing.T) {
	w, r := inCluster(t)
	pod := aPod()
	pod.Spec.Volumes = []corev1.Volume{tokenVolume(3600)}
	r.Update(pod)
	mustDo(t, r, pod, lifecycle.CreateSandbox{})
	agrees := func(when, token, a, labels string) {
		t.Helper()
		want := map[string]string{"token": "-rw-r--r-- " + token, "a": "-rw-r--r-- " + a, "labels": "-rw-r--r-- " + labels}
		if diff := cmp.Diff(want, contents(t, r.store.volume(pod.UID, "all"))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	const first, second = "token 1 of shop/default for [vault]", "token 2 of shop/default for [vault]"
	agrees("at first", first, "1", `app="web"`)

	w.settings["a"] = "2"
	changed := pod.DeepCopy()
	changed.Labels = map[string]string{"app": "shop"}
	r.Update(changed)
	r.follow(t.Context())
	agrees("changed", first, "2", `app="shop"`)

	w.settings, w.refuses = nil, errors.New("no token")
	w.clock.Step(50 * time.Minute)
	r.follow(t.Context())
	agrees("the objects are gone", first, "2", `app="shop"`)

	w.settings, w.refuses = map[string]string{"a": "3"}, nil
	r.follow(t.Context())
	agrees("the token is due", second, "3", `app="shop"`)

	mustDo(t, r, pod, lifecycle.RemoveSandbox{ID: r.Observe(pod.UID).Sandbox.ID, Final: true})
	r.follow(t.Context())
	if known := r.Known(); len(known) != 0 {
		t.Errorf("the files of %v are there again", known)
	}
}

// TestFollowReadsOnce checks that an object that several pods refer to is read once.
func TestFollowReadsOnce(t *testing.T) {
	w, r := inCluster(t)
	for _, name := range []string{"u-1", "u-2", "u-3"} {
		pod := aPod()
		pod.Name, pod.UID = name, types.UID(name)
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref("settings")}}}}
		r.Update(pod)
		mustDo(t, r, pod, lifecycle.CreateSandbox{})
	}
	w.requests = 0
	r.follow(t.Context())
	if w.requests != 1 {
		t.Errorf("%d requests, want one", w.requests)
	}
}

// TestFollowSkipsBusyPods checks that the removal of the volumes of a pod, which may take long, delays no update of
// another pod.
func TestFollowSkipsBusyPods(t *testing.T) {
	w, r := inCluster(t)
	for _, uid := range []types.UID{"u-1", "u-2", "u-3"} {
		pod := aPod()
		pod.UID = uid
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref("settings")}}}}
		r.Update(pod)
		mustDo(t, r, pod, lifecycle.CreateSandbox{})
	}
	w.settings["a"] = "2"
	content := func(uid types.UID) string { return contents(t, r.store.volume(uid, "v"))["a"] }
	unlock := sync.OnceFunc(r.files.lock("u-2"))
	defer unlock()
	ended := make(chan struct{}, 1)
	go func() {
		r.follow(t.Context())
		ended <- struct{}{}
	}()
	eventually.Holds(t, "the round ends", func() bool { return len(ended) == 1 })
	unlock()
	for _, uid := range []types.UID{"u-1", "u-3"} {
		if got := content(uid); got != "-rw-r--r-- 2" {
			t.Errorf("%s has %s", uid, got)
		}
	}
	if got := content("u-2"); got != "-rw-r--r-- 1" {
		t.Errorf("the busy pod has %s", got)
	}
	r.follow(t.Context())
	if got := content("u-2"); got != "-rw-r--r-- 2" {
		t.Errorf("the pod has %s, in the next round", got)
	}
	if len(r.files.locks) != 0 {
		t.Errorf("%d locks are kept", len(r.files.locks))
	}
}

// TestTokenIsRenewedAfterFourFifthsOfItsLife checks that a token is kept until four fifths of its life are over, and not for longer than a day. If no
// new token can be requested, it is used until it expires.
func TestTokenIsRenewedAfterFourFifthsOfItsLife(t *testing.T) {
	for name, test := range map[string]struct {
		seconds int64
		after   time.Duration
		refuses error
		want    string
		wrong   bool
	}{
		"young":                 {3600, 47 * time.Minute, nil, "token 1", false},
		"due":                   {3600, 48 * time.Minute, nil, "token 2", false},
		"due, but refused":      {3600, 59 * time.Minute, errors.New("no"), "token 1", false},
		"expired and refused":   {3600, time.Hour, errors.New("no"), "", true},
		"a week, nearly a day":  {7 * 24 * 3600, 23 * time.Hour, nil, "token 1", false},
		"a week, a day old":     {7 * 24 * 3600, 24 * time.Hour, nil, "token 2", false},
		"ten minutes, at eight": {600, 8 * time.Minute, nil, "token 2", false},
	} {
		w := &cluster{clock: testclock.NewFakeClock(time.Unix(1_700_000_000, 0))}
		kept, pod := newTokens(w, w.clock), aPod()
		pod.Spec.ServiceAccountName = "robot"
		p := &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &test.seconds}
		if _, err := kept.get(t.Context(), pod, p); err != nil {
			t.Fatal(err)
		}
		w.clock.Step(test.after)
		w.refuses = test.refuses
		got, err := kept.get(t.Context(), pod, p)
		want := test.want
		if want != "" {
			want += " of shop/robot for []"
		}
		if got != want || (err != nil) != test.wrong {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
		if r := w.issued[0].Spec.BoundObjectRef; r.Kind != "Pod" || r.Name != pod.Name || r.UID != pod.UID {
			t.Errorf("bound to %+v", r)
		}
	}
}

// TestTokenMode checks that a token belongs to the user that all containers run as, or is readable for the fsGroup.
func TestTokenMode(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.PodSpec)
		mode   uint32
		user   *int64
	}{
		"nobody in particular": {func(*corev1.PodSpec) {}, 0o644, nil},
		"one user":             {func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(7))} }, 0o600, new(int64(7))},
		"several users": {func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(7))}
			s.Containers = append(s.Containers, corev1.Container{Name: "d", SecurityContext: &corev1.SecurityContext{RunAsUser: new(int64(8))}})
		}, 0o644, nil},
		"one user, and one unknown": {func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(7))}
			s.Containers = append(s.Containers, corev1.Container{Name: "d"})
		}, 0o644, nil},
		"a group": {func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(9))} }, 0o600, nil},
	} {
		pod := aPod()
		test.change(&pod.Spec)
		pod.Spec.Volumes = []corev1.Volume{tokenVolume(3600)}
		w := &cluster{settings: map[string]string{}, clock: testclock.NewFakeClock(time.Unix(1_700_000_000, 0))}
		files, err := filesOf(pod, &pod.Spec.Volumes[0].VolumeSource, gatherVolumes(t.Context(), w, issuers{newTokens(w, w.clock), newCertificates(w, w.clock)}, pod))
		if err != nil {
			t.Fatal(err)
		}
		last := files[len(files)-1]
		if last.path != "token" || !last.private || uint32(last.mode) != test.mode {
			t.Errorf("%s: %s %o, want %o", name, last.path, last.mode, test.mode)
		}
		if diff := cmp.Diff(test.user, ownersOf(pod).user); diff != "" {
			t.Errorf("%s: the user (-want +got):\n%s", name, diff)
		}
	}
}

// TestFinishedPodFreesItsVolumes checks that the volumes of a pod are removed with its stopped sandbox, or later if it
// has none, and that they do not come back. Logs stay, and so do the volumes of a pod with a container that is alive.
func TestFinishedPodFreesItsVolumes(t *testing.T) {
	_, r := inCluster(t)
	pod := aPod()
	pod.Spec.Volumes = []corev1.Volume{tokenVolume(3600), {Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	r.Update(pod)
	mustDo(t, r, pod, lifecycle.CreateSandbox{})
	mustDo(t, r, pod, lifecycle.Start{Container: "c"})
	log := filepath.Join(r.store.logs(pod.UID), "line")
	if err := os.MkdirAll(filepath.Dir(log), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	hasVolumes := func(when string, want bool) {
		t.Helper()
		if got := r.store.hasVolumes(pod.UID); got != want {
			t.Errorf("%s: has volumes: %t", when, got)
		}
	}
	ended := pod.DeepCopy()
	ended.Status.Phase = corev1.PodFailed
	r.Update(ended)
	r.clean(t.Context())
	hasVolumes("a container is alive", true)

	before := r.Observe(pod.UID)
	mustDo(t, r, pod, lifecycle.Kill{ID: before.Instances[0].ID, Container: "c"})
	mustDo(t, r, pod, lifecycle.StopSandbox{ID: before.Sandbox.ID})
	hasVolumes("the sandbox is stopped", false)
	if err := r.followPod(t.Context(), r.objects, pod); err != nil { // it began before
		t.Error(err)
	}
	hasVolumes("followed", false)
	if _, err := os.Stat(log); err != nil {
		t.Errorf("the logs are gone: %v", err)
	}

	if err := r.prepare(pod, gatherVolumes(t.Context(), r.objects, r.issuers, pod)); err != nil { // as for a sandbox that could not be created
		t.Fatal(err)
	}
	hasVolumes("made again", true)
	r.clean(t.Context())
	hasVolumes("ended without a sandbox", false)
}
