package protected

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// preferred is a discovery of ConfigMaps, and of more kinds.
type preferred struct {
	discovery.DiscoveryInterface // any other request causes a nil dereference

	more []metav1.APIResource
}

// ServerPreferredResources implements discovery.DiscoveryInterface.
func (p preferred) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: append([]metav1.APIResource{
		{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"list", "delete"}},
	}, p.more...)}}, nil
}

// surveyed is a client that calls list for each list, and finds nothing.
type surveyed struct {
	metadata.Interface // any other request causes a nil dereference
	metadata.Getter

	list func(context.Context) error
}

// Resource implements metadata.Interface.
func (s surveyed) Resource(schema.GroupVersionResource) metadata.Getter { return s }

// List implements metadata.Getter.
func (s surveyed) List(ctx context.Context, _ metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	return &metav1.PartialObjectMetadataList{}, s.list(ctx)
}

// R28: deletions of workloads in mode unused, which any tenant may request, make the server list all objects once at a time.
// The others wait for it. If that takes too long, they are asked to try again.
func TestR28_OneSurveyAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, goOn := make(chan struct{}), make(chan struct{})
		underWay := 0 // the test reads and writes it between messages
		answers := lookUp(t, func(context.Context) error {
			if underWay++; underWay > 1 {
				t.Error("two surveys at the same time")
			}
			began <- struct{}{}
			<-goOn
			underWay--
			return nil
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
func lookUp(t *testing.T, list func(context.Context) error, more ...metav1.APIResource) func() error {
	lookup, unused := workloads(list), protection.New("unused", "")
	lookup.Discovery = preferred{more: more}
	return func() error {
		of := inuse.Object{Kind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, Namespace: "shop", Name: "web"}
		refusal := unused.Decide(protection.Request, lookup.Remaining(t.Context(), nil, of, unused))
		if refusal == nil {
			return nil
		}
		return refusal.Error(schema.GroupResource{Group: "apps", Resource: "deployments"}, of.Namespace, of.Name)
	}
}

// workloads returns the look-ups of a server with a Deployment.
func workloads(list func(context.Context) error) Lookup {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion})
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	return Lookup{
		Mapper: mapper, Metadata: surveyed{list: list}, Discovery: preferred{}, Surveys: NewSurveys(),
		Objects: dynamicfake.NewSimpleDynamicClient(clientgoscheme.Scheme, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}),
	}
}

// R28: a user with many deletions takes one turn, as everybody does. So do all ServiceAccounts of a namespace together: a tenant
// can make many. Deletions of a party keep their order.
func TestR28_UsersTakeTurnsInSurveys(t *testing.T) {
	for name, tenant := range map[string]func(n int) string{
		"a user":          func(int) string { return "tenant" },
		"ServiceAccounts": func(n int) string { return fmt.Sprint("system:serviceaccount:tenant:sa-", n) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				surveys := NewSurveys()
				end, ok := surveys.begin(forUser(t.Context(), tenant(0)))
				if !ok {
					t.Fatal("no survey is under way")
				}
				var got []string
				wait := func(user, deletion string) {
					go func() {
						end, ok := surveys.begin(forUser(t.Context(), user))
						if !ok {
							deletion += " gave up"
						}
						got = append(got, deletion)
						if ok {
							end()
						}
					}()
					synctest.Wait()
				}
				for n := range 50 {
					wait(tenant(n), fmt.Sprint("tenant ", n))
				}
				wait("ann", "ann 0")
				wait("ann", "ann 1")
				wait("bob", "bob 0")
				wait("system:serviceaccount:other:sa-0", "other 0")
				end()
				synctest.Wait()
				if want := []string{"tenant 0", "ann 0", "bob 0", "other 0", "tenant 1", "ann 1", "tenant 2"}; len(got) != 54 || !slices.Equal(got[:7], want) {
					t.Errorf("turns: %q, want %q first", got, want)
				}
				if len(surveys.parties)+len(surveys.deletions) > 0 || surveys.underWay {
					t.Errorf("left: %+v", surveys)
				}
			})
		})
	}
}

// endless is a client of kinds whose pages take some time, and have no end.
type endless struct {
	metadata.Interface // any other request causes a nil dereference
	metadata.Getter

	takes time.Duration
}

// Resource implements metadata.Interface.
func (e endless) Resource(schema.GroupVersionResource) metadata.Getter { return e }

// List implements metadata.Getter.
func (e endless) List(ctx context.Context, _ metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	select {
	case <-time.After(e.takes):
		return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{Continue: "more"}}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// R28: a survey ends even if each page comes in time. The deletion is refused, and says why.
func TestR28_SurveysEnd(t *testing.T) {
	for _, takes := range []time.Duration{longestPage / 10, longestPage - time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			lookup, unused := workloads(nil), protection.New("unused", "")
			lookup.Metadata = endless{takes: takes}
			of, began := inuse.Object{Kind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, Namespace: "shop", Name: "web"}, time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			left := lookup.Remaining(ctx, nil, of, unused)
			if took := time.Since(began); took != longestSurvey {
				t.Errorf("pages take %s, and a survey %s; want %s", takes, took, longestSurvey)
			}
			if len(left) != 1 || !strings.Contains(left[0].Unknown, "the server does not list them in time") {
				t.Errorf("pages take %s: %+v", takes, left)
			}
		})
	}
}

// slowly is a discovery that counts its requests. Each takes some time.
type slowly struct {
	discovery.DiscoveryInterface // any other request causes a nil dereference

	requests, underWay *int // tests read and write them between messages
	t                  *testing.T
}

// ServerPreferredResources implements discovery.DiscoveryInterface.
func (s slowly) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	*s.requests++
	if *s.underWay++; *s.underWay > 1 {
		s.t.Error("two discoveries at the same time")
	}
	time.Sleep(time.Second)
	*s.underWay--
	return preferred{}.ServerPreferredResources()
}

// R28: a deletion that waits for its turn has not read which kinds there are: that is a part of its survey.
func TestR28_DiscoveryIsPartOfASurvey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lookup, unused := workloads(func(context.Context) error { return nil }), protection.New("unused", "")
		requests, underWay := 0, 0
		lookup.Discovery = slowly{requests: &requests, underWay: &underWay, t: t}
		of, ended := inuse.Object{Kind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, Namespace: "shop", Name: "web"}, make(chan int)
		const deletions = 20
		for range deletions {
			go func() { ended <- len(lookup.Remaining(t.Context(), nil, of, unused)) }()
		}
		gaveUp := 0
		for range deletions {
			gaveUp += <-ended
		}
		if want := deletions - gaveUp; gaveUp == 0 || requests != want {
			t.Errorf("%d discoveries, want %d: %d of %d deletions gave up their turns", requests, want, gaveUp, deletions)
		}
	})
}

// R28: deletions that wait for too long leave nothing behind. One that gives up at the moment of its turn passes it on.
func TestR28_DeletionsGiveUpTheirTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		surveys := NewSurveys()
		end, _ := surveys.begin(t.Context())
		gaveUp := make(chan bool)
		for range 3 {
			go func() {
				_, ok := surveys.begin(forUser(t.Context(), "ann"))
				gaveUp <- !ok
			}()
		}
		for range 3 {
			if !<-gaveUp {
				t.Error("two surveys at the same time")
			}
		}
		if len(surveys.parties)+len(surveys.deletions) > 0 {
			t.Errorf("left: %+v", surveys)
		}
		late, next := surveys.enter("ann"), surveys.enter("bob")
		end()
		surveys.giveUp("ann", late)
		select {
		case <-next:
		default:
			t.Error("the turn is lost")
		}
		surveys.end()
		if _, ok := surveys.begin(t.Context()); !ok {
			t.Error("no survey is under way, and none may begin")
		}
	})
}

// R28: a list that hangs ends the survey. The deletion is refused, since it is unknown whether the object is in use.
func TestR28_HangingListEndsASurvey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := 0
		answers := lookUp(t, func(ctx context.Context) error {
			if lists++; lists > 1 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}, metav1.APIResource{Name: "secrets", Kind: "Secret", Namespaced: true, Verbs: metav1.Verbs{"list", "delete"}})
		first := make(chan error)
		go func() { first <- answers() }()
		synctest.Wait()
		if err := answers(); err != nil {
			t.Errorf("nothing uses the workload: %v", err)
		}
		err := <-first
		if message, isRefused := protection.Refused(err); !isRefused || !strings.Contains(message, "ConfigMap (not known whether that is there: the server does not list them in time") {
			t.Errorf("the list hangs: %v", err)
		}
		if lists != 3 {
			t.Errorf("%d lists, want 1 and then 2: others wait for the first survey", lists)
		}
	})
}

// The webhook looks up on behalf of the user in the review.
func TestR28_WebhookLooksUpForItsUser(t *testing.T) {
	user := ""
	lookup := workloads(func(ctx context.Context) error {
		user = userOf(ctx)
		return nil
	})
	h := Webhook{Outlived: lookup, Checker: installedAt(installed), Now: time.Now}
	response := h.answer(t.Context(), &admissionv1.AdmissionRequest{
		Operation: admissionv1.Delete, Name: "web", Namespace: "shop", UserInfo: authenticationv1.UserInfo{Username: "ann"},
		Kind: metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Resource: metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
		OldObject: runtime.RawExtension{Raw: []byte(`{"metadata":{"namespace":"shop","name":"web","labels":{"coppice.dev/protect":"unused"}}}`)},
	})
	if !response.Allowed || user != "ann" {
		t.Errorf("the user is %q; %+v", user, response)
	}
}
