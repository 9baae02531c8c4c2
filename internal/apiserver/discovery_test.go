package apiserver_test

import (
	"encoding/json"
	"flag"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

// recordFrom is where recordedDiscovery comes from:
//
//	cd bench && go run ./onkubernetes -dir .. sh -c 'go test ./internal/apiserver -run TestServesWhat -discovery.record=$KUBECONFIG'
var recordFrom = flag.String("discovery.record", "", "the kubeconfig of a server whose discovery is to be recorded")

// recordedDiscovery returns the file with the discovery of a kube-apiserver of a minor, for example "1.37".
func recordedDiscovery(minor string) string { return "testdata/discovery-" + minor + ".txt" }

// lastMinor returns the minor of the libraries, which a server has by default.
func lastMinor() string {
	minors := version.Minors()
	return minors[len(minors)-1]
}

// endpoints are the resources and subresources of a server, "apps/v1 deployments/scale", with
// their verbs.
type endpoints map[string][]string

// readEndpoints reads a list of endpoints, one per line: the group version, the resource, the verbs. Lines
// that begin with # are comments.
func readEndpoints(t *testing.T, file string) endpoints {
	t.Helper()
	all := endpoints{}
	for _, line := range linesOf(t, file) {
		words := strings.Fields(line)
		all[words[0]+" "+words[1]] = words[2:]
	}
	return all
}

// serves reports whether a group version has endpoints.
func (e endpoints) serves(version string) bool {
	for endpoint := range e {
		if strings.HasPrefix(endpoint, version+" ") {
			return true
		}
	}
	return false
}

func linesOf(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// served returns the endpoints in the discovery documents of a server.
func (c *client) served(t *testing.T) endpoints {
	t.Helper()
	get := func(path string, into any) {
		t.Helper()
		answer, err := c.send(http.MethodGet, path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(answer.Object)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, into); err != nil {
			t.Fatal(err)
		}
	}
	paths := []string{"/api/v1"}
	var groups metav1.APIGroupList
	get("/apis", &groups)
	for _, group := range groups.Groups {
		for _, version := range group.Versions {
			paths = append(paths, "/apis/"+version.GroupVersion)
		}
	}
	all := endpoints{}
	for _, path := range paths {
		var list metav1.APIResourceList
		get(path, &list)
		for _, r := range list.APIResources {
			all[list.GroupVersion+" "+r.Name] = r.Verbs
		}
	}
	return all
}

// record writes the discovery of a server to the file of recorded endpoints.
func record(t *testing.T, kubeconfig string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newClient(config)
	if err != nil {
		t.Fatal(err)
	}
	reported, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	text := "# What kube-apiserver " + reported.GitVersion + " serves: group version, resource, verbs. Recorded by TestServesWhatKubernetesServes.\n"
	all := c.served(t)
	for _, endpoint := range slices.Sorted(maps.Keys(all)) {
		text += strings.Join(append([]string{endpoint}, all[endpoint]...), " ") + "\n"
	}
	if err := os.WriteFile(recordedDiscovery(lastMinor()), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// difference is a line of testdata/discovery-differences.txt.
type difference struct{ endpoint, name, reason string }

func differences(t *testing.T) []difference {
	t.Helper()
	var all []difference
	for _, line := range linesOf(t, "testdata/discovery-differences.txt") {
		words := strings.SplitN(line, " | ", 3)
		if len(words) != 3 {
			t.Fatalf("%q is not endpoint | name | reason", line)
		}
		all = append(all, difference{words[0], words[1], words[2]})
	}
	return all
}

// TestServesWhatKubernetesServes compares with the recorded discovery of kube-apiserver: the server serves
// each of its endpoints with exactly its verbs, except the listed differences, and no others in these group versions.
func TestServesWhatKubernetesServes(t *testing.T) {
	served := sharedServer(t).client(t).served(t)
	declared := map[string]bool{}
	for _, d := range differences(t) {
		declared[d.endpoint] = true
		if _, ok := served[d.endpoint]; ok {
			t.Errorf("%s is served: testdata/discovery-differences.txt and docs/semantics.md say that it is not", d.endpoint)
		}
	}
	if *recordFrom != "" {
		record(t, *recordFrom)
	}
	recorded := readEndpoints(t, recordedDiscovery(lastMinor()))
	for _, endpoint := range slices.Sorted(maps.Keys(recorded)) {
		verbs, ok := served[endpoint]
		switch {
		case declared[endpoint]:
		case !ok:
			t.Errorf("%s is not served", endpoint)
		case !slices.Equal(slices.Sorted(slices.Values(verbs)), slices.Sorted(slices.Values(recorded[endpoint]))):
			t.Errorf("%s has the verbs %v, want %v", endpoint, verbs, recorded[endpoint])
		}
	}
	// Group versions that kube-apiserver does not serve are those of definitions, and removed ones (R17).
	for _, endpoint := range slices.Sorted(maps.Keys(served)) {
		version, _, _ := strings.Cut(endpoint, " ")
		if _, ok := recorded[endpoint]; !ok && recorded.serves(version) {
			t.Errorf("kube-apiserver does not serve %s", endpoint)
		}
	}
	for endpoint := range declared {
		if _, ok := recorded[endpoint]; !ok {
			t.Errorf("kube-apiserver has no %s", endpoint)
		}
	}
}

// TestOlderMinorsServeTheirResources compares servers of older minors with the recorded discovery of their kube-apiserver:
// what Kubernetes has added since is not served, and all else is, as by a server of the last minor.
func TestOlderMinorsServeTheirResources(t *testing.T) {
	now := startServer(t, nil).client(t).served(t) // the shared one has definitions of other tests
	latest := readEndpoints(t, recordedDiscovery(lastMinor()))
	for _, minor := range slices.DeleteFunc(version.Minors(), func(m string) bool { return m == lastMinor() }) {
		t.Run(minor, func(t *testing.T) {
			kubernetes, err := version.KubernetesOf(minor)
			if err != nil {
				t.Fatal(err)
			}
			s := startServer(t, func(c *apiserver.Config) { c.Version = kubernetes })
			served, recorded := s.client(t).served(t), readEndpoints(t, recordedDiscovery(minor))
			want := maps.Clone(now)
			maps.DeleteFunc(want, func(endpoint string, _ []string) bool {
				_, isLatest := latest[endpoint]
				return isLatest && recorded[endpoint] == nil
			})
			if d := cmp.Diff(want, served); d != "" {
				t.Errorf("differences (-want +got):\n%s", d)
			}
			// A minor may serve the same as the last one, so a record of the wrong one would not be noticed.
			release, _, _ := strings.Cut(kubernetes, "+")
			text, err := os.ReadFile(recordedDiscovery(minor))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(text), "# What kube-apiserver "+release+" serves") {
				t.Errorf("%s does not begin with the release, %s", recordedDiscovery(minor), release)
			}
		})
	}
}

// TestUnservedResourcesAreDocumented checks that docs/semantics.md names exactly the resources that are not
// served.
func TestUnservedResourcesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/semantics.md")
	if err != nil {
		t.Fatal(err)
	}
	section := regexp.MustCompile(`(?s)### What is not there\n(.*?)\n### `).FindSubmatch(text)
	if section == nil {
		t.Fatal("docs/semantics.md has no section about what is not there")
	}
	document := strings.Join(strings.Fields(string(section[1])), " ")
	names := map[string]bool{}
	for _, d := range differences(t) {
		names[d.name] = true
		if !regexp.MustCompile(`(^|[^\w/])` + regexp.QuoteMeta(d.name) + `\b`).MatchString(document) {
			t.Errorf("docs/semantics.md does not name %s among what is not there", d.name)
		}
	}
	list := regexp.MustCompile(`These resources of kube-apiserver 1\.\d+ are not served: (.*?)\. `).FindStringSubmatch(document)
	if list == nil {
		return // everything is served
	}
	for _, name := range regexp.MustCompile(`, and |, | and |; `).Split(list[1], -1) {
		if name = strings.TrimSpace(name); !names[name] {
			t.Errorf("docs/semantics.md says that %q is not served; no difference in testdata/discovery-differences.txt has that name", name)
		}
	}
}
