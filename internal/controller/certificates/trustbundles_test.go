package certificates

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/controller"
)

// TestTrustBundleIsPublished checks that there is one bundle of the signer, with the certificates.
func TestTrustBundleIsPublished(t *testing.T) {
	authority := []byte("pem")
	// The name is upstream's for these certificates: the first 12 bytes of their SHA-256.
	const own = "kubernetes.io:kube-apiserver-serving:f0aeace912cf19dc1c6fffd4"
	bundle := func(name, contents string) *certificatesv1.ClusterTrustBundle {
		return &certificatesv1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", ResourceVersion: "7"},
			Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: servingSigner, TrustBundle: contents},
		}
	}
	for name, test := range map[string]struct {
		there []*certificatesv1.ClusterTrustBundle
		want  []string
	}{
		"nothing":           {nil, []string{"create " + own}},
		"what is wanted":    {[]*certificatesv1.ClusterTrustBundle{bundle(own, "pem")}, nil},
		"other contents":    {[]*certificatesv1.ClusterTrustBundle{bundle(own, "x")}, []string{"update " + own}},
		"an old authority":  {[]*certificatesv1.ClusterTrustBundle{bundle("old", "x")}, []string{"create " + own, "delete old"}},
		"one of both kinds": {[]*certificatesv1.ClusterTrustBundle{bundle("old", "x"), bundle(own, "pem")}, []string{"delete old"}},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			c := NewTrustBundlePublisher(contextFor(t, client, epoch), authority)
			for _, b := range test.there {
				if err := client.Tracker().Add(b); err != nil {
					t.Fatal(err)
				}
				if err := c.Sources[0].Informer.GetIndexer().Add(b); err != nil {
					t.Fatal(err)
				}
			}
			request := <-c.Requests
			if _, err := c.Reconcile(t.Context(), request.Key); err != nil {
				t.Fatal(err)
			}
			if got := written(t, client); !slices.Equal(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestOldPodRequestsAreDeleted(t *testing.T) {
	request := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "a", UID: "u", ResourceVersion: "7", CreationTimestamp: metav1.NewTime(epoch),
	}}
	for age, want := range map[time.Duration]struct {
		writes       []string
		requeueAfter time.Duration
	}{
		0:                                {nil, keptPodRequest + time.Second},
		keptPodRequest - time.Nanosecond: {nil, time.Second + time.Nanosecond},
		keptPodRequest:                   {[]string{"delete a"}, 0},
	} {
		client := fake.NewClientset(request)
		c := NewPodRequestCleaner(contextFor(t, client, epoch.Add(age)))
		if err := c.Sources[0].Informer.GetIndexer().Add(request); err != nil {
			t.Fatal(err)
		}
		requeueAfter, err := c.Reconcile(t.Context(), cache.MetaObjectToName(request))
		if got := written(t, client); err != nil || requeueAfter != want.requeueAfter || !slices.Equal(got, want.writes) {
			t.Errorf("after %s: %q, and again in %s (%v), want %q in %s", age, got, requeueAfter, err, want.writes, want.requeueAfter)
		}
	}
}

func contextFor(t *testing.T, client *fake.Clientset, now time.Time) *controller.Context {
	t.Helper()
	shared, err := controller.NewContext(client, clocktesting.NewFakeClock(now), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return shared
}

// written returns the writes, sorted. It checks that a deletion is conditioned on the version of the decision.
func written(t *testing.T, client *fake.Clientset) []string {
	t.Helper()
	var writes []string
	for _, action := range client.Actions() {
		switch action := action.(type) {
		case clienttesting.DeleteAction:
			p := action.GetDeleteOptions().Preconditions
			if p == nil || p.UID == nil || *p.UID != "u" || p.ResourceVersion == nil || *p.ResourceVersion != "7" {
				t.Errorf("a deletion with preconditions %v", p)
			}
			writes = append(writes, "delete "+action.GetName())
		case clienttesting.CreateAction: // so are updates
			m, ok := action.GetObject().(metav1.Object)
			if !ok {
				t.Fatalf("%T", action.GetObject())
			}
			writes = append(writes, action.GetVerb()+" "+m.GetName())
		}
	}
	slices.Sort(writes)
	return writes
}
