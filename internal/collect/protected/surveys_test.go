package protected

import (
	"context"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// preferred is a discovery of one kind.
type preferred struct {
	discovery.DiscoveryInterface // any other request causes a nil dereference
}

// ServerPreferredResources implements discovery.DiscoveryInterface.
func (preferred) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"list", "delete"}},
	}}}, nil
}

// surveyed is a client that calls list for each list, and finds nothing.
type surveyed struct {
	metadata.Interface // any other request causes a nil dereference
	metadata.Getter

	list func()
}

// Resource implements metadata.Interface.
func (s surveyed) Resource(schema.GroupVersionResource) metadata.Getter { return s }

// List implements metadata.Getter.
func (s surveyed) List(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	s.list()
	return &metav1.PartialObjectMetadataList{}, nil
}

// R28: deletions of workloads in mode unused, which any tenant may request, make the server list all objects once at a time.
// The others wait for it. If that takes too long, they are asked to try again.
func TestR28_OneSurveyAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, goOn := make(chan struct{}), make(chan struct{})
		underWay := 0 // the test reads and writes it between messages
		answers := lookUp(t, func() {
			if underWay++; underWay > 1 {
				t.Error("two surveys at the same time")
			}
			began <- struct{}{}
			<-goOn
			underWay--
		})
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- answers() }()
		<-began
		for range 10 {
			err := answers()
			if after, isSuggested := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !isSuggested || after != 1 {
				t.Fatalf("while another deletion looks up for a long time: %v", err)
			}
			if _, isRefused := protection.Refused(err); isRefused {
				t.Errorf("a refusal that nobody has to lift: %v", err)
			}
		}
		go func() { second <- answers() }()
		synctest.Wait()
		goOn <- struct{}{}
		<-began
		goOn <- struct{}{}
		for n, answer := range []<-chan error{first, second} {
			if err := <-answer; err != nil {
				t.Errorf("deletion %d: nothing uses the workload: %v", n+1, err)
			}
		}
	})
}

// lookUp returns a function that looks up the users of a Deployment. It calls list for each list.
func lookUp(t *testing.T, list func()) func() error {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion})
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	lookup := Lookup{
		Mapper: mapper, Metadata: surveyed{list: list}, Discovery: preferred{}, Surveys: NewSurveys(),
		Objects: dynamicfake.NewSimpleDynamicClient(clientgoscheme.Scheme, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}),
	}
	unused := protection.New("unused", "")
	return func() error {
		of := inuse.Object{Kind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, Namespace: "shop", Name: "web"}
		refusal := unused.Decide(protection.Request, lookup.Remaining(t.Context(), nil, of, unused))
		if refusal == nil {
			return nil
		}
		return refusal.Error(schema.GroupResource{Group: "apps", Resource: "deployments"}, of.Namespace, of.Name)
	}
}
