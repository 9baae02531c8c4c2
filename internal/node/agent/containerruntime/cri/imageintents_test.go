package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	coredns = "registry.k8s.io/coredns:v1"
	alias   = "evil.io/x:1"
)

// imageStore is an image service in which an image may have several names, and a name may move to another image.
type imageStore struct {
	internalapi.ImageManagerService

	registry map[string]string        // the ID that a pull of a name brings
	pulling  func(image string) error // nil: a pull stores the image; otherwise pulling does so, or not
	fails    map[string]int           // how many calls of a method succeed before one fails

	mu     sync.Mutex
	images []*runtimeapi.Image // guarded by mu
}

// save gives a name to the image with an ID, and creates it if necessary.
func (s *imageStore) save(name, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *runtimeapi.Image
	for _, image := range s.images {
		image.RepoTags = slices.DeleteFunc(image.RepoTags, func(n string) bool { return n == name })
		if image.GetId() == id {
			found = image
		}
	}
	if found == nil {
		found = &runtimeapi.Image{Id: id, RepoDigests: []string{repositoryName(name) + "@" + id}}
		s.images = append(s.images, found)
	}
	found.RepoTags = append(found.RepoTags, name)
}

// pull stores the image that the registry has for a name.
func (s *imageStore) pull(name string) { s.save(name, s.registry[name]) }

// failOnce returns an error once, after the calls that succeed.
func (s *imageStore) failOnce(method string) error {
	left, isSet := s.fails[method]
	if !isSet {
		return nil
	}
	s.fails[method] = left - 1
	if left != 0 {
		return nil
	}
	return errors.New(method + " has failed")
}

// ListImages implements internalapi.ImageManagerService.
func (s *imageStore) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	if err := s.failOnce("ListImages"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.images), nil
}

// ImageStatus implements internalapi.ImageManagerService.
func (s *imageStore) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	if err := errors.Join(ctx.Err(), s.failOnce("ImageStatus")); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, there := range s.images {
		if there.GetId() == image.GetImage() || slices.Contains(append(there.GetRepoTags(), there.GetRepoDigests()...), image.GetImage()) {
			return &runtimeapi.ImageStatusResponse{Image: there}, nil
		}
	}
	return &runtimeapi.ImageStatusResponse{}, nil
}

// PullImage implements internalapi.ImageManagerService.
func (s *imageStore) PullImage(_ context.Context, image *runtimeapi.ImageSpec, _ *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	if s.pulling == nil {
		s.pull(image.GetImage())
	} else if err := s.pulling(image.GetImage()); err != nil {
		return "", err
	}
	return s.registry[image.GetImage()], nil
}

// withStore returns a shared node with these images.
func withStore(t *testing.T, images map[string]string) (*shared, *imageStore) {
	t.Helper()
	n := newShared(t)
	s := &imageStore{ImageManagerService: n.f.images, fails: map[string]int{}, registry: map[string]string{coredns: "id-dns", alias: "id-dns", private: "id-new"}}
	for name, id := range images {
		s.save(name, id)
	}
	n.images.ImageManagerService = s
	n.restart()
	return n, s
}

// pullOf begins a pull by a pod of ann. The result is that of the pull.
func (n *shared) pullOf(ctx context.Context, image string) <-chan error {
	result, r := make(chan error, 1), n.runtime
	c := &corev1.Container{Name: "c", Image: image, ImagePullPolicy: corev1.PullAlways}
	go func() {
		_, err := r.image(ctx, podOf("ann"), c, nil)
		result <- err
	}()
	return result
}

// interruption is a pull that does not end as usual. meanwhile is called at the times when others may start pods.
type interruption func(t *testing.T, n *shared, s *imageStore, image string, meanwhile func(when string))

// hung begins a pull that hangs after before, and returns the function that ends it with an error.
func hung(t *testing.T, n *shared, s *imageStore, image string, before func()) (end func(error)) {
	t.Helper()
	begun, ends := make(chan struct{}), make(chan error)
	s.pulling = func(string) error {
		before()
		close(begun)
		return <-ends
	}
	result := n.pullOf(t.Context(), image)
	<-begun
	s.pulling = nil
	return func(err error) {
		ends <- err
		<-result
	}
}

// interruptions are all ways in which a pull that stores its image may be interrupted.
func interruptions() map[string]interruption {
	all := map[string]interruption{
		"under way": func(t *testing.T, n *shared, s *imageStore, image string, meanwhile func(string)) {
			end := hung(t, n, s, image, func() { s.pull(image) })
			meanwhile("under way")
			end(nil)
		},
		"killed": func(t *testing.T, n *shared, s *imageStore, image string, meanwhile func(string)) {
			end := hung(t, n, s, image, func() { s.pull(image) })
			n.restart()
			meanwhile("killed")
			t.Cleanup(func() { end(context.Canceled) })
		},
		"killed, and the runtime stores the image later": func(t *testing.T, n *shared, s *imageStore, image string, _ func(string)) {
			end := hung(t, n, s, image, func() {})
			n.restart()
			n.runtime.pruneImages(t.Context())
			s.pull(image)
			t.Cleanup(func() { end(context.Canceled) })
		},
		"ended after its cancellation": func(t *testing.T, n *shared, s *imageStore, image string, _ func(string)) {
			ctx, cancel := context.WithCancel(t.Context())
			s.pulling = func(string) error {
				s.pull(image)
				cancel()
				return nil
			}
			if err := <-n.pullOf(ctx, image); !errors.Is(err, context.Canceled) {
				t.Errorf("a cancelled pull ends with %v", err)
			}
		},
		"failed after the image was stored": func(t *testing.T, n *shared, s *imageStore, image string, _ func(string)) {
			s.pulling = func(string) error {
				s.pull(image)
				return status.Error(codes.Unknown, "disk full")
			}
			wantFailure(t, n, image)
		},
		"failed after the image was stored, and the list fails": func(t *testing.T, n *shared, s *imageStore, image string, _ func(string)) {
			s.fails["ListImages"] = 1
			s.pulling = func(string) error {
				s.pull(image)
				return status.Error(codes.Unknown, "disk full")
			}
			wantFailure(t, n, image)
		},
		"good, and the status fails": func(t *testing.T, n *shared, s *imageStore, image string, _ func(string)) {
			s.fails["ImageStatus"] = 1
			wantFailure(t, n, image)
		},
		"not begun, since the list fails": func(t *testing.T, n *shared, s *imageStore, image string, _ func(string)) {
			s.fails["ListImages"] = 0
			wantFailure(t, n, image)
			if err := <-n.pullOf(t.Context(), image); err != nil {
				t.Errorf("the next pull: %v", err)
			}
		},
	}
	for _, code := range []codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Internal} {
		all["cut off with "+code.String()] = func(t *testing.T, n *shared, s *imageStore, image string, meanwhile func(string)) {
			s.pulling = func(string) error { return status.Error(code, "cut off") }
			wantFailure(t, n, image)
			s.pull(image)
			meanwhile("stored later")
			n.restart()
		}
	}
	return all
}

func wantFailure(t *testing.T, n *shared, image string) {
	t.Helper()
	if err := <-n.pullOf(t.Context(), image); err == nil {
		t.Error("an interrupted pull has no error")
	}
}

// interrupt plays an interruption, and calls check meanwhile, after it, after restarts, and when it is long over.
func interrupt(t *testing.T, n *shared, s *imageStore, play interruption, image string, check func(when string)) {
	t.Helper()
	play(t, n, s, image, check)
	s.pulling = nil
	check("then")
	n.restart()
	check("restarted")
	n.endPulls()
	check("later")
	n.restart()
	check("restarted later")
}

// TestPreloadedImageStaysOpen checks that no pull, however it is interrupted, closes an image that was there before: neither
// a pull by its name nor one by another name that the image has or gets, neither an anonymous one nor one with credentials.
func TestPreloadedImageStaysOpen(t *testing.T) {
	for name, play := range interruptions() {
		for _, image := range []string{coredns, alias, private, "quay.io/a/new:1"} {
			t.Run(name+"/"+strings.ReplaceAll(image, "/", "-"), func(t *testing.T) {
				n, s := withStore(t, map[string]string{coredns: "id-dns", alias: "id-dns", private: "id-dns"})
				s.registry[private], s.registry["quay.io/a/new:1"] = "id-dns", "id-dns"
				interrupt(t, n, s, play, image, func(when string) {
					t.Helper()
					n.want(when, "bob", coredns, corev1.PullNever, 0, "")
					n.want(when, "bob", coredns, corev1.PullIfNotPresent, 0, "")
				})
			})
		}
	}
}

// TestPrivateImageStaysClosed checks that no pod uses an image without the credentials of its pull, however that is
// interrupted, whether the name had no image before, or one that is open.
func TestPrivateImageStaysClosed(t *testing.T) {
	for name, play := range interruptions() {
		for before, images := range map[string]map[string]string{
			"no image": nil, "open image": {private: "id-old"}, "another image": {coredns: "id-dns", alias: "id-dns"},
		} {
			t.Run(name+"/"+before, func(t *testing.T) {
				n, s := withStore(t, images)
				interrupt(t, n, s, play, private, func(when string) {
					t.Helper()
					n.want(when, "bob", private, corev1.PullNever, 0, "ErrImageNeverPull")
					n.want(when+", by its digest", "bob", repositoryName(private)+"@id-new", corev1.PullNever, 0, "ErrImageNeverPull")
				})
				n.want("with credentials", "ann", private, corev1.PullAlways, 1, "")
				n.want("with credentials again", "ann", private, corev1.PullNever, 0, "")
				n.want("without", "bob", private, corev1.PullNever, 0, "ErrImageNeverPull")
			})
		}
	}
}

// TestLatePullOfPulledName checks that an image that the runtime stores late is closed, also if the name had a pulled image
// before, and if another pull of the name has ended meanwhile.
func TestLatePullOfPulledName(t *testing.T) {
	n, s := withStore(t, nil)
	s.registry[private] = "id-1"
	n.want("the first", "ann", private, corev1.PullIfNotPresent, 1, "")
	s.pulling = func(string) error { return status.Error(codes.Canceled, "cut off") }
	wantFailure(t, n, private)
	s.pulling, s.registry[private] = nil, "id-2"
	n.want("the second", "ann", private, corev1.PullAlways, 1, "")
	s.save(private, "id-3")
	for _, when := range []string{"late", "restarted"} {
		n.want(when, "bob", private, corev1.PullNever, 0, "ErrImageNeverPull")
		n.want(when, "ann", private, corev1.PullNever, 0, "ErrImageNeverPull")
		n.restart()
	}
	n.endPulls()
	n.want("later", "bob", private, corev1.PullNever, 0, "ErrImageNeverPull")
	n.want("the second image", "ann", repositoryName(private)+"@id-2", corev1.PullNever, 0, "")
}

// TestFirstCredentialIsCutOff checks that a pull that succeeds with the second credential does not end the first attempt.
func TestFirstCredentialIsCutOff(t *testing.T) {
	n, s := withStore(t, nil)
	attempts := 0
	s.pulling = func(image string) error {
		if attempts++; attempts == 1 {
			return status.Error(codes.Unavailable, "cut off")
		}
		s.pull(image)
		return nil
	}
	credentials := n.runtime.credentials(t.Context(), podOf("ann"), private)
	p := pull{image: private, secrets: append(credentials, credentials...)}
	if _, err := n.runtime.pullFor(t.Context(), podOf("ann"), &corev1.Container{Image: private}, p); err != nil || attempts != 2 {
		t.Fatalf("%d attempts, %v", attempts, err)
	}
	n.want("pulled", "ann", private, corev1.PullNever, 0, "")
	s.save(private, "id-late")
	n.want("late", "bob", private, corev1.PullNever, 0, "ErrImageNeverPull")
}

// TestRemovedImageIsNotOpenForever checks that an image that was there before a pull, and was removed, is closed when a pull
// with credentials brings it again, although an earlier pull of the name is not over.
func TestRemovedImageIsNotOpenForever(t *testing.T) {
	n, s := withStore(t, map[string]string{private: "id-new"})
	s.pulling = func(string) error { return status.Error(codes.Canceled, "cut off") }
	wantFailure(t, n, private)
	s.images = nil
	wantFailure(t, n, private)
	s.pulling = nil
	s.pull(private)
	n.want("stored late", "bob", private, corev1.PullNever, 0, "ErrImageNeverPull")
	n.want("pulled", "ann", private, corev1.PullIfNotPresent, 1, "")
	n.endPulls()
	n.want("later", "bob", private, corev1.PullNever, 0, "ErrImageNeverPull")
}

// TestRecordsOfEarlierAgents checks that the records of agents that stored neither the images before a pull nor the use of
// names are read, and that the rest of a file from before a pull is removed.
func TestRecordsOfEarlierAgents(t *testing.T) {
	n, s := withStore(t, map[string]string{private: "id-new", coredns: "id-dns"})
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(recordPath(n.runtime.records.pulls(), private), fmt.Sprintf(`{"image":%q}`, private))
	write(recordPath(n.runtime.records.pulls(), coredns)+".new", fmt.Sprintf(`{"image":%q}`, coredns))
	write(recordPath(n.runtime.records.pulls(), "half"), `{"image":`)
	write(recordPath(n.runtime.records.pulled(), "id-open"), `{"id":"id-open","names":{"quay.io/a/open":{"everybody":true},"quay.io/a/own":{"secrets":[{"namespace":"ann","name":"pull","uid":"ann/pull","hash":"h"}]}}}`)
	s.save("quay.io/a/open:1", "id-open")
	s.save("quay.io/a/own:1", "id-open")
	n.restart()
	n.want("begun", "bob", private, corev1.PullNever, 0, "ErrImageNeverPull")
	n.want("not begun", "bob", coredns, corev1.PullNever, 0, "")
	n.want("pulled anonymously", "bob", "quay.io/a/open:1", corev1.PullNever, 0, "")
	n.want("pulled with credentials", "ann", "quay.io/a/own:1", corev1.PullNever, 0, "")
	n.want("pulled with credentials", "bob", "quay.io/a/own:1", corev1.PullNever, 0, "ErrImageNeverPull")
	if left, err := os.ReadDir(n.runtime.records.pulls()); err != nil || len(left) != 1 {
		t.Errorf("pulls %v, %v", left, err)
	}
	n.endPulls()
}
