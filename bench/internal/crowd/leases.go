package crowd

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// leases keeps the Leases that clients create for leader election. No list and no watch has them.
type leases struct {
	now func() time.Time

	mu      sync.Mutex
	objects map[types.NamespacedName]*coordinationv1.Lease // guarded by mu, and so is all below
	version int
	leader  string    // the holder of the Lease that was written last
	ends    time.Time // when that Lease expires
}

func newLeases(now func() time.Time) *leases {
	return &leases{now: now, objects: map[types.NamespacedName]*coordinationv1.Lease{}}
}

// mostLeases bounds the kept Leases.
const mostLeases = 1000

// serve answers a request for one Lease.
func (l *leases) serve(w http.ResponseWriter, r *http.Request, t target) {
	var written coordinationv1.Lease
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		if err := decode(r, &written); err != nil {
			refuse(w, r, err)
			return
		}
		if t.name == "" {
			t.name = written.Name
		}
	}
	lease, code, err := l.answer(r.Method, types.NamespacedName{Namespace: t.namespace, Name: t.name}, &written)
	if err != nil {
		refuse(w, r, err)
		return
	}
	lease.TypeMeta = metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"}
	writeObject(w, r, code, lease)
}

func (l *leases) answer(method string, key types.NamespacedName, written *coordinationv1.Lease) (*coordinationv1.Lease, int, error) {
	resource := coordinationv1.Resource("leases")
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.objects[key]
	switch {
	case method == http.MethodPost && now != nil:
		return nil, 0, apierrors.NewAlreadyExists(resource, key.Name)
	case method == http.MethodPost && len(l.objects) == mostLeases:
		return nil, 0, apierrors.NewTooManyRequests("the crowd keeps no more Leases", 1)
	case method == http.MethodPost:
		return l.writeLocked(key, written), http.StatusCreated, nil
	case now == nil:
		return nil, 0, apierrors.NewNotFound(resource, key.Name)
	case method == http.MethodPut && written.ResourceVersion != "" && written.ResourceVersion != now.ResourceVersion:
		return nil, 0, apierrors.NewConflict(resource, key.Name, errors.New("the Lease has changed"))
	case method == http.MethodPut:
		return l.writeLocked(key, written), http.StatusOK, nil
	case method == http.MethodGet:
		return now.DeepCopy(), http.StatusOK, nil
	}
	return nil, 0, apierrors.NewMethodNotSupported(resource, method)
}

func (l *leases) writeLocked(key types.NamespacedName, written *coordinationv1.Lease) *coordinationv1.Lease {
	l.version++
	written.Namespace, written.Name = key.Namespace, key.Name
	written.UID, written.ResourceVersion = types.UID("lease-"+key.Name), strconv.Itoa(l.version)
	l.objects[key] = written.DeepCopy()
	l.leader = ""
	if written.Spec.HolderIdentity != nil {
		l.leader = *written.Spec.HolderIdentity
	}
	l.ends = l.now()
	if written.Spec.LeaseDurationSeconds != nil {
		l.ends = l.ends.Add(time.Duration(*written.Spec.LeaseDurationSeconds) * time.Second)
	}
	return written
}

// last returns the holder of the Lease that was written last, and when it expires.
func (l *leases) last() (leader string, ends time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leader, l.ends
}
