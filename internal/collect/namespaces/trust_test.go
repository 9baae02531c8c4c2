package namespaces

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/pace"
)

// R4: a server fails while the contents of a namespace are deleted, and comes back from a backup in which the namespace is
// active. No object of it is deleted by what was known before, although each has the UID that it had.
func TestR4_NamespaceRestoredDuringAnOutage(t *testing.T) {
	const each, failsAt = 90, 20
	for name, test := range map[string]struct {
		hangs time.Duration // for so long a request hangs before it fails
		lasts time.Duration
	}{
		"requests are refused":                     {0, time.Minute},
		"requests hang":                            {10 * time.Second, time.Minute},
		"requests hang, and end after the restore": {10 * time.Second, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFakeServer(t, configMaps, deployments)
				fill := func() {
					for i := range each {
						w.create("shop", configMaps, fmt.Sprint("c", i))
						w.create("shop", deployments, fmt.Sprint("d", i))
					}
				}
				fill()
				w.terminating("shop")
				var mu sync.Mutex
				deletes, isDown := 0, false
				failed := make(chan struct{})
				w.before = func(request string) {
					mu.Lock()
					if strings.HasPrefix(request, "delete ") {
						if deletes++; deletes == failsAt {
							isDown = true
							close(failed)
						}
					}
					fails := isDown
					mu.Unlock()
					if !fails {
						return
					}
					<-time.After(test.hangs)
					w.mu.Lock()
					w.once[request] = context.DeadlineExceeded
					w.mu.Unlock()
				}
				w.run()
				<-failed
				<-time.After(test.lasts)
				w.mu.Lock()
				clear(w.objects)
				w.mu.Unlock()
				fill()
				w.activate("shop")
				mu.Lock()
				isDown = false
				mu.Unlock()
				<-time.After(10 * time.Minute)
				if got := len(w.existing(configMaps)) + len(w.existing(deployments)); got != 2*each {
					t.Errorf("%d of %d objects of an active namespace are there", got, 2*each)
				}
			})
		})
	}
}

// activate makes a namespace active again, as a restored backup does.
func (w *fakeServer) activate(name string) {
	ns := w.namespace(name).DeepCopy()
	ns.DeletionTimestamp, ns.Status.Phase = nil, corev1.NamespaceActive
	if err := w.typed.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), ns, ""); err != nil {
		w.t.Fatal(err)
	}
}

// A type whose DELETEs get no answer does not hold up the others, and costs one read of the namespace in each sync.
func TestR22_UnansweredDeletesHoldOneType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, deployments, configMaps)
		for i := range 50 {
			name := fmt.Sprint("o", i)
			w.create("shop", configMaps, name)
			w.create("shop", deployments, name)
			w.broken["delete deployments "+name] = context.DeadlineExceeded
		}
		w.terminating("shop")
		w.run(func(c *Config) { c.Concurrency = 1 })
		<-time.After(15 * time.Millisecond) // before the second sync
		if got := len(w.existing(configMaps)); got > 0 {
			t.Errorf("%d ConfigMaps are left", got)
		}
		if deletes, gets := w.count("delete deployments"), w.count("get namespace"); deletes != 1 || gets != 2 {
			t.Errorf("%d DELETEs of Deployments and %d reads of the namespace, want 1 and 2", deletes, gets)
		}
		w.mu.Lock()
		clear(w.broken)
		w.mu.Unlock()
		w.goneWithin("shop", 2*maxBackoff)
	})
}

// A namespace that was replaced during an outage is another one.
func TestR4_ReplacedNamespaceIsNotEmptied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, configMaps)
		w.create("shop", configMaps, "a")
		w.terminating("shop", func(ns *corev1.Namespace) { ns.UID = types.UID("former") })
		c, err := New(Config{Client: w.typed, Metadata: w, Catalogue: w})
		if err != nil {
			t.Fatal(err)
		}
		read := w.namespace("shop")
		trust := c.newTrust(read, 0)
		if err := trust.confirm(t.Context()); err != nil {
			t.Errorf("nothing has happened: %v", err)
		}
		now := read.DeepCopy()
		now.UID = "other"
		if err := w.typed.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), now, ""); err != nil {
			t.Fatal(err)
		}
		_ = trust.note(trust.reading(t.Context()), context.DeadlineExceeded)
		if err := trust.confirm(t.Context()); err == nil || !trust.isLost() {
			t.Errorf("another namespace is taken for the former one: %v", err)
		}
	})
}

// An API server gives some answers in plain text: the definition of a custom resource was removed after the list, or the server
// is busy. The same answers of a load balancer end the trust (R4).
func TestR4_PlainTextOfTheServerIsAnAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		answer        *http.Response
		isLost, fails bool // fails: a DELETE does
	}{
		"404 of the server":        {answer: audited(http.StatusNotFound)},
		"409 of the server":        {answer: audited(http.StatusConflict)},
		"429 of the server":        {answer: audited(http.StatusTooManyRequests), fails: true},
		"404 of a load balancer":   {answer: paged(http.StatusNotFound), isLost: true, fails: true},
		"409 of a load balancer":   {answer: paged(http.StatusConflict), isLost: true, fails: true},
		"429 of a load balancer":   {answer: paged(http.StatusTooManyRequests), isLost: true, fails: true},
		"a page of a proxy":        {answer: paged(http.StatusOK), isLost: true, fails: true},
		"the server does not know": {answer: audited(http.StatusUnauthorized), isLost: true, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			body, err := io.ReadAll(test.answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			server := lateServer(func(r *http.Request) (*http.Response, error) {
				answer := *test.answer
				answer.Body, answer.Request = io.NopCloser(bytes.NewReader(body)), r
				return &answer, nil
			})
			controller, err := NewForConfig(&rest.Config{Host: "http://server", Transport: server}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "shop"}}
			reading := controller.newTrust(ns, 0)
			found := controller.contents.read(t.Context(), reading, []Resource{configMaps}, nil)
			if reading.isLost() != test.isLost || len(found) != 1 || found[0].Err == nil {
				t.Errorf("after a list, the trust is lost: %t, want %t; %+v", reading.isLost(), test.isLost, found)
			}
			deleting := controller.newTrust(ns, 0)
			target := &target{object: Object{Name: "a", UID: "1"}}
			deletion{controller.contents, "shop", []Content{{Resource: configMaps}}, deleting}.deleteTarget(t.Context(), target)
			if deleting.isLost() != test.isLost || target.isSilent != test.isLost || (target.err != nil) != test.fails {
				t.Errorf("after a DELETE, the trust is lost: %t, want %t; %+v", deleting.isLost(), test.isLost, target)
			}
		})
	}
}

// A DELETE whose connection comes late is not sent: the connection may lead to a restored server.
func TestR4_LateDeletesAreNotSent(t *testing.T) {
	for wait, isSent := range map[time.Duration]bool{latest: true, latest + time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			isRead := false
			server := lateServer(func(r *http.Request) (*http.Response, error) {
				<-time.After(wait)
				if _, err := r.Body.Read(make([]byte, 1)); err != nil {
					return nil, err
				}
				isRead = true
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Header: http.Header{}}, nil
			})
			controller, err := NewForConfig(&rest.Config{Host: "http://server", Transport: server}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			trust := controller.newTrust(&corev1.Namespace{}, 0)
			object := Object{Name: "a", UID: "1"}
			err = controller.contents.deleteObject(trust.conditional(t.Context()), "shop", configMaps, object)
			if isRead != isSent || pace.IsNotSent(err) == isSent {
				t.Errorf("after %v: it was sent: %t; error %v", wait, isRead, err)
			}
		})
	}
}

// lateServer is a server that is a function.
type lateServer func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f lateServer) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
