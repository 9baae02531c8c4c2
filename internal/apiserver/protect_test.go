package apiserver_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/controller/volumeprotection"
	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// startProtection runs the volume protection controller until the test ends.
func (s *server) startProtection(t *testing.T) {
	t.Helper()
	config, err := s.ProtectionController()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	controller, err := volumeprotection.New(volumeprotection.Config{Client: client, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := controller.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

func (s *server) claims(t *testing.T, namespace string) collection {
	return s.collection(t, gvk("", "v1", "PersistentVolumeClaim"), "persistentvolumeclaims", namespace, map[string]any{"spec": map[string]any{
		"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}},
	}})
}

func (s *server) volumes(t *testing.T, claim *object) collection {
	ref := map[string]any{"namespace": claim.GetNamespace(), "name": claim.GetName(), "uid": string(claim.GetUID())}
	return s.collection(t, gvk("", "v1", "PersistentVolume"), "persistentvolumes", "", map[string]any{"spec": map[string]any{
		"accessModes": []any{"ReadWriteOnce"}, "capacity": map[string]any{"storage": "1Gi"},
		"hostPath": map[string]any{"path": "/data"}, "claimRef": ref,
	}})
}

// goes waits until the object no longer exists.
func (c collection) goes(name string) {
	c.t.Helper()
	eventually.Agrees(c.t, func() string {
		if o := c.get(name); o != nil {
			return c.resource.Resource + " " + name + " is left"
		}
		return ""
	})
}

// A PersistentVolumeClaim stays while a pod uses it, and a PersistentVolume while it is bound to
// a claim; they are removed when that ends, and at once if they were never in use.
func TestR23_Protection(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.startProtection(t)
	namespace := s.namespace(t)
	claims, pods := s.claims(t, namespace), s.pods(t, namespace)
	claims.create("free")
	used := claims.create("used", foreign)
	if got, want := used.GetFinalizers(), []string{foreign, inuse.PVCProtection}; !slices.Equal(got, want) {
		t.Errorf("a claim is created with %v, want %v", got, want)
	}
	volumes := s.volumes(t, used)
	volumes.create("disk")
	if _, err := claims.patch("used", "application/merge-patch+json", map[string]any{"spec": map[string]any{"volumeName": "disk"}}); err != nil {
		t.Fatal(err)
	}
	user := pods.named("user")
	spec := user.Object["spec"].(map[string]any)
	spec["volumes"] = []any{map[string]any{"name": "v", "persistentVolumeClaim": map[string]any{"claimName": "used"}}}
	pods.post(user)

	if got, want := volumes.mustRemove("disk", nil).GetFinalizers(), []string{inuse.PVProtection}; !slices.Equal(got, want) {
		t.Errorf("a volume is marked with %v, want %v", got, want)
	}
	claims.mustRemove("used", nil)
	claims.mustRemove("free", nil)
	claims.goes("free") // by then the controller has seen the others
	if got, want := claims.get("used").GetFinalizers(), []string{foreign, inuse.PVCProtection}; !slices.Equal(got, want) {
		t.Errorf("a claim in use is left with %v, want %v", got, want)
	}
	if volumes.get("disk") == nil {
		t.Fatal("the volume went before its claim")
	}

	pods.mustRemove("user", grace(0))
	eventually.Agrees(t, func() string {
		if got := claims.get("used").GetFinalizers(); !slices.Equal(got, []string{foreign}) {
			return "a claim that nothing uses is protected"
		}
		return ""
	})
	if volumes.get("disk") == nil {
		t.Fatal("the volume went before its claim, which a finalizer holds")
	}
	if _, err := claims.patch("used", "application/merge-patch+json", mergeFinalizers()); err != nil {
		t.Fatal(err)
	}
	claims.goes("used")
	volumes.goes("disk")
}

// A VolumeAttributesClass stays while a volume claim names it.
func TestR23_ClassProtection(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.startProtection(t)
	classes := s.collection(t, gvk("storage.k8s.io", "v1", "VolumeAttributesClass"), "volumeattributesclasses", "", map[string]any{
		"driverName": "disk.example.com", "parameters": map[string]any{"iops": "1"},
	})
	classes.create("free")
	if got, want := classes.create("used").GetFinalizers(), []string{inuse.VACProtection}; !slices.Equal(got, want) {
		t.Errorf("a class is created with %v, want %v", got, want)
	}
	claims := s.claims(t, s.namespace(t))
	claims.content["spec"].(map[string]any)["volumeAttributesClassName"] = "used"
	claims.create("a")
	classes.mustRemove("used", nil)
	classes.mustRemove("free", nil)
	classes.goes("free") // by then the controller has seen the other
	if got, want := classes.get("used").GetFinalizers(), []string{inuse.VACProtection}; !slices.Equal(got, want) {
		t.Errorf("a class in use is left with %v, want %v", got, want)
	}
	claims.mustRemove("a", nil)
	classes.goes("used")
}

// Without the controller that removes the finalizers, none is set.
func TestR23_ProtectionDisabled(t *testing.T) {
	t.Parallel()
	s := startServer(t, func(c *apiserver.Config) { c.Features.VolumeProtection = false })
	claims := s.claims(t, s.namespace(t))
	created := claims.create("a")
	if got := created.GetFinalizers(); len(got) > 0 {
		t.Errorf("finalizers %v", got)
	}
	claims.mustRemove("a", nil)
	if claims.get("a") != nil {
		t.Error("it is left")
	}
}
