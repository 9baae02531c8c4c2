package e2e

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// TestConformanceOfThePlane: a control plane with all its controllers passes its own checks, and
// they leave nothing behind.
func TestConformanceOfThePlane(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0")
	out, stderr, code := coppice(t, "conformance", "--kubeconfig", p.kubeconfig, "--upstream", "none", "-o", "json")
	var report struct {
		Counts map[string]int
		Checks []struct {
			Name, Outcome string
			Failures      []string
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v: %s%s", err, out, stderr)
	}
	if code != 0 || report.Counts["pass"] < 100 || report.Counts["pass"]+report.Counts["skipped"] != len(report.Checks) {
		t.Errorf("exit code %d, %v, %s", code, report.Counts, stderr)
	}
	for _, c := range report.Checks {
		if c.Outcome != "pass" && c.Outcome != "skipped" {
			t.Errorf("%s: %s: %v", c.Outcome, c.Name, c.Failures)
		}
	}
	hasNothingOfChecks(t, p)
}

// hasNothingOfChecks fails if something is left that is named after a run of the checks.
func hasNothingOfChecks(t *testing.T, p *plane) {
	t.Helper()
	for _, kind := range []string{"namespaces", "clusterroles", "customresourcedefinitions", "apiservices"} {
		eventually.Agrees(t, func() string {
			out, err := exec.Command(binary, "kubectl", "--kubeconfig", p.kubeconfig, "get", kind, "-o", "name").CombinedOutput()
			if err != nil || strings.Contains(string(out), "conformance") {
				return fmt.Sprintf("%s: %v: %s", kind, err, out)
			}
			return ""
		})
	}
}

// TestConformanceFails: a server that ignores preconditions fails, with exit code 1 and the reason
// in the report.
func TestConformanceFails(t *testing.T) {
	t.Parallel()
	p := sharedPlane(t)
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		options := map[string]any{}
		body, err := io.ReadAll(r.In.Body)
		if err == nil && r.In.Method == http.MethodDelete && json.Unmarshal(body, &options) == nil {
			delete(options, "preconditions")
			body, err = json.Marshal(options)
		}
		if err != nil {
			t.Error(err)
		}
		r.Out.Body, r.Out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}})
	t.Cleanup(proxy.Close)
	out, stderr, code := coppice(t, "conformance", "--server", proxy.URL, "--upstream", "none", "--rule", "R12", "--rule", "AS-13", "-o", "junit")
	var report struct {
		Suite struct {
			Tests    int `xml:"tests,attr"`
			Failures int `xml:"failures,attr"`
			Cases    []struct {
				Name    string `xml:"name,attr"`
				Failure *struct {
					Text string `xml:",chardata"`
				} `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v: %s%s", err, out, stderr)
	}
	if code != 1 || report.Suite.Tests != 2 || report.Suite.Failures != 1 || !strings.Contains(stderr, "1 of 2 checks failed") {
		t.Errorf("exit code %d, %s, %s", code, out, stderr)
	}
	for _, c := range report.Suite.Cases {
		if isBroken := strings.HasPrefix(c.Name, "AS-02"); isBroken != (c.Failure != nil) {
			t.Errorf("%+v", c)
		} else if isBroken && !strings.Contains(c.Failure.Text, "to be refused with 409") {
			t.Errorf("the failure is %s", c.Failure.Text)
		}
	}
}

// TestConformanceNeedsWhatItIsTold: controllers that do nothing are detected before any check waits
// for them, and checks of controllers that are declared absent are skipped.
func TestConformanceNeedsWhatItIsTold(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", "--controllers=namespace", "--enable-garbage-collector=false")
	_, stderr, code := coppice(t, "conformance", "--kubeconfig", p.kubeconfig, "--timeout", "1s")
	if code != 2 || !strings.Contains(stderr, "no collector seems to run") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	out, stderr, code := coppice(t, "conformance", "--kubeconfig", p.kubeconfig, "--controllers", "namespace", "--rule", "R18", "--rule", "R13")
	if code != 0 || !strings.Contains(out, "no collector runs (--controllers)\n") || !strings.Contains(out, " passed, ") {
		t.Errorf("exit code %d, %s%s", code, out, stderr)
	}
	hasNothingOfChecks(t, p)
}
