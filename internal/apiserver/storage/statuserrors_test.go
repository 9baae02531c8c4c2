package storage

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
	"github.com/coppice-dev/coppice/internal/testing/etcdcluster"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// Without a majority of the members, a write fails in a bounded time, and the error says that it may have been carried
// out. With a majority, writes succeed again.
func TestWriteWithoutMajorityMayHaveBeenCarriedOut(t *testing.T) {
	t.Parallel()
	c := etcdcluster.Start(t, 3, nil)
	s := connect(t, c)
	contents := s.configMapStorage(t)
	eventually.Succeeds(t, func() error { // an election may come between, and the write may have been carried out
		if err := contents.create("team", "with three"); !apistorage.IsExist(err) {
			return err
		}
		return nil
	})
	c.Stop(0)
	c.Stop(1)
	err := contents.create("team", "with one")
	if !apierrors.IsTimeout(err) || !strings.Contains(err.Error(), "may or may not have been carried out") {
		t.Errorf("a write: %v", err)
	}
	c.Restart(t, 1)
	eventually.Succeeds(t, func() error { return s.store.Healthy(t.Context()) })
	eventually.Succeeds(t, func() error { return contents.create("team", "with two") })
}

// When the quota of etcd is used up, writes are refused with a reason that clients can recognize. Objects can still be
// deleted.
func TestWritesToAFullStoreHaveAReason(t *testing.T) {
	contents := openWith(t, etcd.Options{Dir: t.TempDir(), Ephemeral: true, QuotaBytes: 2 << 20}).configMapStorage(t)
	var err error
	for n := 0; err == nil && n < 1000; n++ {
		large := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprint(n)}, Data: map[string]string{"large": strings.Repeat("x", 100_000)},
		}
		err = contents.Create(t.Context(), contents.key("team", large.Name), large, nil, 0)
	}
	if apierrors.ReasonForError(err) != ReasonInsufficientStorage || !strings.Contains(err.Error(), "etcd is full") {
		t.Errorf("a write: %v", err)
	}
	must(t, contents.remove("team", "0"))
}
