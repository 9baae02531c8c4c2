package api_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/collect/storybook"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// telling returns a cluster with the stories of a Deployment, deleted together with a Secret, and of another Secret.
func telling() cluster {
	b := storybook.New()
	now := time.Now()
	b.Requested(story.Request{Key: "r", UID: "web", By: story.By{User: "ann", Agent: "kubectl/v1.36"}, Policy: "Foreground"})
	b.Seen(&ownership.Object{
		UID: "web", Kind: ownership.Kind{Group: "apps", Kind: "Deployment"}, Namespace: "shop", Name: "web",
		Phase: ownership.Foreground, Finalizers: []string{ownership.FinalizerForeground},
	}, shopUID, now)
	b.Seen(&ownership.Object{
		UID: "password", Kind: ownership.Kind{Kind: "Secret"}, Namespace: "shop", Name: "password", Phase: ownership.Terminating, Finalizers: []string{"acme.io/hold"},
		Owners: []ownership.Reference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "web"}},
	}, shopUID, now)
	b.Gone(secretAlone(), shopUID, now)
	return cluster{book: b}
}

func secretAlone() *ownership.Object {
	return &ownership.Object{UID: "alone", Kind: ownership.Kind{Kind: "Secret"}, Namespace: "shop", Name: "alone"}
}

// A caller sees only deletions of objects that they may list, and no names of other objects.
func TestStoriesNameNoHiddenObjects(t *testing.T) {
	for _, c := range []struct {
		name, token, path string
		code              int
		says, not         []string
	}{
		{"all", everything, api.Stories, 200, []string{`"web"`, `"ann"`, `"alone"`, "acme.io/hold of Secret shop/password"}, nil},
		{"without secrets", noSecrets, api.Stories, 200, []string{`"web"`, `"waiting": 1`, api.LeftOut}, []string{"password", "alone"}},
		{"one", everything, api.Stories + "/web", 200, []string{`"objects"`, "password", `"finalizer": "acme.io/hold"`, `"policy": "Foreground"`}, []string{"alone"}},
		{"one, without secrets", noSecrets, api.Stories + "/web", 200, []string{`"objects"`}, []string{"password"}},
		{"as text", everything, api.Stories + "/web?format=text", 200, []string{"Deployment.apps shop/web: being deleted (Foreground)", "asked by ann with kubectl/v1.36", "waits for the finalizer acme.io/hold of Secret shop/password"}, nil},
		{"as text, without secrets", noSecrets, api.Stories + "/web?format=text", 200, []string{"0 gone, 1 waiting"}, []string{"password", "Secret"}},
		{"that of a secret", everything, api.Stories + "/alone", 200, []string{`"alone"`}, nil},
		{"that of a secret, without secrets", noSecrets, api.Stories + "/alone", 404, nil, []string{"Secret", "secrets"}},
		{"its changes, without secrets", noSecrets, api.Stories + "/alone/watch", 404, nil, []string{"Secret", "secrets"}},
		{"none", everything, api.Stories + "/nobody", 404, []string{"may have expired"}, nil},
		{"in another format", everything, api.Stories + "/web?format=xml", 400, []string{"json or text"}, nil},
		{"nobody", "", api.Stories, 401, nil, []string{"web"}},
		{"the API server does not answer", "broken", api.Stories, 502, nil, []string{"web"}},
	} {
		code, body := ask(t, telling(), c.token, c.path)
		if code != c.code {
			t.Errorf("%s: %d, want %d: %s", c.name, code, c.code, body)
		}
		for _, text := range c.says {
			if !strings.Contains(body, text) {
				t.Errorf("%s: it does not say %q: %s", c.name, text, body)
			}
		}
		for _, text := range c.not {
			if strings.Contains(body, text) {
				t.Errorf("%s: it says %q: %s", c.name, text, body)
			}
		}
	}
	if code, _ := ask(t, cluster{}, everything, api.Stories); code != http.StatusServiceUnavailable {
		t.Errorf("without a collector: %d", code)
	}
}

// follow returns a function that reads the next event of a stream.
func follow(t *testing.T, source api.Source, token, path string) (next func() (event string, data map[string]any)) {
	t.Helper()
	server := httptest.NewServer(api.Handler(source, access))
	t.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	lines := bufio.NewScanner(response.Body)
	return func() (event string, data map[string]any) {
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				event = name
			}
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
				if err := json.Unmarshal([]byte(text), &data); err != nil {
					t.Fatalf("%v: %s", err, text)
				}
				return event, data
			}
		}
		t.Fatalf("the stream of %s ends: %v", path, lines.Err())
		return "", nil
	}
}

// The stream has the list at first, and then the changes, including the end of a story.
func TestWatchOfStoriesHasTheListAndThenTheChanges(t *testing.T) {
	source := telling()
	next := follow(t, source, noSecrets, api.Stories+"/watch")
	if event, data := next(); event != api.EventStory || data["id"] != "web" || data["waiting"] != 1.0 {
		t.Errorf("at first: %s %v", event, data)
	}
	// The caller may not list the Secret: it appears neither in an event nor in a count.
	source.book.Gone(&ownership.Object{UID: "password", Kind: ownership.Kind{Kind: "Secret"}, Namespace: "shop", Name: "password"}, shopUID, time.Now())
	source.book.Gone(&ownership.Object{UID: "web", Kind: ownership.Kind{Group: "apps", Kind: "Deployment"}, Namespace: "shop", Name: "web"}, shopUID, time.Now())
	if event, data := next(); event != api.EventStory || data["gone"] != 1.0 || data["done"] != nil {
		t.Errorf("it is gone: %s %v", event, data)
	}
	if event, data := next(); event != api.EventStory || data["done"] != true || data["ended"] == nil {
		t.Errorf("it has ended: %s %v", event, data)
	}
}

// The stream of a story has all its objects at first, and then the changed ones.
func TestWatchOfAStoryHasAllObjectsAndThenTheChanged(t *testing.T) {
	source := telling()
	next := follow(t, source, noSecrets, api.Stories+"/web/watch")
	var got []string
	for range 2 {
		event, data := next()
		got = append(got, event)
		if event == api.EventObjects && data["uid"] != "web" {
			t.Errorf("the objects: %v", data)
		}
	}
	if !slices.Equal(got, []string{api.EventStory, api.EventObjects}) {
		t.Errorf("at first: %v", got)
	}
	source.book.Gone(secretAlone(), shopUID, time.Now()) // of another story
	source.book.Gone(&ownership.Object{UID: "web", Kind: ownership.Kind{Group: "apps", Kind: "Deployment"}, Namespace: "shop", Name: "web"}, shopUID, time.Now())
	if event, data := next(); event != api.EventStory || data["gone"] != 1.0 {
		t.Errorf("it is gone: %s %v", event, data)
	}
	if event, data := next(); event != api.EventObjects || data["gone"] == nil {
		t.Errorf("it is gone: %s %v", event, data)
	}
}

// Rights in a namespace do not cover objects that were deleted in an earlier namespace of that name, or in a namespace
// with an unknown UID.
func TestFormerNamespacesAreNotTold(t *testing.T) {
	book, now := storybook.New(), time.Now()
	var records []report.Record
	for n, home := range []ownership.UID{"the former shop", "", shopUID} {
		name := []string{"former", "doubtful", "present"}[n]
		o := &ownership.Object{UID: ownership.UID(name), Kind: ownership.Kind{Kind: "ConfigMap"}, Namespace: "shop", Name: name}
		book.Gone(o, home, now)
		object := report.RecordedObject{Kind: "ConfigMap", Namespace: "shop", NamespaceUID: report.UID(home), Name: name, UID: report.UID(o.UID)}
		records = append(records, report.Record{
			Number: uint64(n + 1), Action: report.ActionDelete, Object: object, Decision: "delete Background: owners absent: ConfigMap owner-of-" + name,
			Owners: []report.Owner{{Kind: "ConfigMap", Namespace: "shop", Name: "owner-of-" + name}},
		})
	}
	source := cluster{records: records, book: book}
	for token, want := range map[string][]string{
		everything: {"former", "doubtful", "present"}, "configmaps": {"former", "doubtful", "present"}, "configmaps/shop": {"present"}, "secrets/shop": nil,
	} {
		for _, path := range []string{api.Records, api.Stories} {
			code, body := ask(t, source, token, path)
			if code != http.StatusOK {
				t.Errorf("%s asks for %s: %d %s", token, path, code, body)
			}
			saysOnly(t, token+" asks for "+path, body, want)
		}
		for _, name := range []string{"former", "doubtful", "present"} {
			isTold := slices.Contains(want, name)
			for _, path := range []string{api.Stories + "/" + name, api.Stories + "/" + name + "?format=text"} {
				if code, body := ask(t, source, token, path); (code == http.StatusOK) != isTold {
					t.Errorf("%s asks for %s: %d %s", token, path, code, body)
				}
			}
			if _, body := ask(t, source, token, api.Records+"?uid="+name); strings.Contains(body, "owner-of-"+name) != isTold {
				t.Errorf("%s asks for the record of %s: %s", token, name, body)
			}
		}
	}
}

// saysOnly checks which of the names of TestFormerNamespacesAreNotTold are in an answer.
func saysOnly(t *testing.T, about, body string, want []string) {
	t.Helper()
	for _, name := range []string{"former", "doubtful", "present"} {
		if says := strings.Contains(body, `"name": "`+name+`"`); says != slices.Contains(want, name) || !says && strings.Contains(body, name+`"`) {
			t.Errorf("%s, which says %s: %v\n%s", about, name, says, body)
		}
	}
}
