package differential

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/difference"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// securedNamespaces are labels of Pod Security Standards; the first ones leave a namespace as it is.
var securedNamespaces = []string{
	`{}`,
	`{"pod-security.kubernetes.io/enforce":"privileged"}`,
	`{"pod-security.kubernetes.io/enforce":"baseline"}`,
	`{"pod-security.kubernetes.io/enforce":"restricted","pod-security.kubernetes.io/enforce-version":"v1.24"}`,
	`{"pod-security.kubernetes.io/warn":"restricted","pod-security.kubernetes.io/audit":"restricted"}`,
	`{"pod-security.kubernetes.io/enforce":"baseline","pod-security.kubernetes.io/warn":"restricted"}`,
	`{"pod-security.kubernetes.io/enforce":"bogus"}`,
	`{"pod-security.kubernetes.io/enforce-version":"bogus","pod-security.kubernetes.io/warn":""}`,
}

// securedSpecs are specs of pods that no level, one level or all levels permit.
var securedSpecs = []string{
	`"containers":[{"name":"a","image":"a"}]`,
	`"hostNetwork":true,"hostPID":true,"containers":[{"name":"a","image":"a","ports":[{"containerPort":80,"hostPort":80}]}]`,
	`"containers":[{"name":"a","image":"a","securityContext":{"privileged":true,"procMount":"Default"}}],"volumes":[{"name":"v","hostPath":{"path":"/"}}]`,
	`"containers":[{"name":"a","image":"a","securityContext":{"capabilities":{"add":["SYS_ADMIN","CHOWN"]}}}],"securityContext":{"seLinuxOptions":{"type":"a","user":"b"}}`,
	`"securityContext":{"runAsNonRoot":true,"runAsUser":0,"sysctls":[{"name":"kernel.msgmax","value":"1"}],"seccompProfile":{"type":"Unconfined"}},"containers":[{"name":"a","image":"a"}]`,
	`"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}},` +
		`"containers":[{"name":"a","image":"a","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]`,
}

// TestPodSecurity compares the answers to pods, and to templates of pods, in namespaces with labels of Pod Security Standards, and to
// such labels.
func TestPodSecurity(t *testing.T) {
	pair := servers(t)
	compare := func(method, path, contentType, body string) (lines []string) {
		t.Helper()
		var outcomes [2]difference.Outcome
		for i, s := range pair {
			var err error
			if outcomes[i], err = s.raw(t.Context(), method, path, contentType, []byte(body)); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
		}
		return difference.Lines(outcomes[0], outcomes[1])
	}
	check := func(method, path, body string) {
		t.Helper()
		for _, line := range compare(method, path, asJSON, body) {
			t.Errorf("%s %s %s\n  %s", method, path, body, line)
		}
	}
	for i, labels := range securedNamespaces {
		namespace := fmt.Sprintf("secured-%d-%d", os.Getpid(), i)
		check(http.MethodPost, "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+namespace+`","labels":`+labels+`}}`)
		if strings.Contains(labels, "bogus") {
			continue // it is refused
		}
		for _, spec := range securedSpecs {
			meta := `"metadata":{"name":"a","labels":{"a":"b"}}`
			check(http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods?dryRun=All", `{"apiVersion":"v1","kind":"Pod",`+meta+`,"spec":{`+spec+`}}`)
			check(http.MethodPost, "/apis/apps/v1/namespaces/"+namespace+"/deployments?dryRun=All", `{"apiVersion":"apps/v1","kind":"Deployment",`+meta+
				`,"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{`+meta+`,"spec":{`+spec+`}}}}`)
		}
	}
	// Pods of a namespace without labels, whose level changes. Upstream looks for them in a cache.
	namespace := fmt.Sprintf("secured-%d-0", os.Getpid())
	for i, spec := range securedSpecs {
		check(http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods", fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pod-%d"},"spec":{%s}}`, i, spec))
	}
	for _, labels := range securedNamespaces {
		eventually.Agrees(t, func() string {
			return strings.Join(compare(http.MethodPatch, "/api/v1/namespaces/"+namespace+"?dryRun=All", asMerge, `{"metadata":{"labels":`+labels+`}}`), "\n")
		})
	}
}
