package e2e

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// denying returns a webhook that denies every DELETE of a ConfigMap with the label "keep", in a namespace.
func denying(t *testing.T, namespace string) (manifest string) {
	t.Helper()
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "it is kept", Code: http.StatusNotFound}}
		_ = json.NewEncoder(w).Encode(review) // a client that has given up does not read it
	}))
	t.Cleanup(hook.Close)
	authority := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}))
	return `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: denying}
webhooks:
- name: deny.example.com
  sideEffects: None
  admissionReviewVersions: [v1]
  clientConfig: {url: "` + hook.URL + `", caBundle: ` + authority + `}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ` + namespace + `}}
  objectSelector: {matchExpressions: [{key: keep, operator: Exists}]}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [configmaps]}]
`
}

// agrees runs coppice until its output has some words, and none of others.
func agrees(t *testing.T, p *plane, args, words, not []string) {
	t.Helper()
	eventually.Agrees(t, func() string {
		out, errs, _ := coppice(t, append([]string{args[0], "--kubeconfig", p.kubeconfig}, args[1:]...)...)
		for _, one := range words {
			if !strings.Contains(out, one) {
				return "no " + one + " in\n" + out + errs
			}
		}
		for _, one := range not {
			if strings.Contains(out, one) {
				return one + " in\n" + out
			}
		}
		return ""
	})
}

// R31: a webhook that denies the deletion of a dependent is named while it holds the owner, and afterwards: by explain,
// with the report of the collector and without, and in the story.
func TestRefusalOfAWebhookIsNamed(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", noNodes)
	k := ourKubectl(p)
	const namespace = "denied"
	k.run(t, "create", "namespace", namespace)
	k.apply(t, namespace, denying(t, namespace))
	k.run(t, "create", "-n", namespace, "configmap", "root")
	root := k.get(t, namespace, "configmap/root", "{.metadata.uid}")
	k.apply(t, namespace, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kept","labels":{"keep":"yes"},"ownerReferences":[`+
		`{"apiVersion":"v1","kind":"ConfigMap","name":"root","uid":"`+root+`","blockOwnerDeletion":true}]}}`)
	eventually.Agrees(t, func() string { // once the server has observed the webhook
		out, _, err := k.try(t, "", "delete", "-n", namespace, "configmap", "kept", "--dry-run=server")
		if err == nil {
			return "not refused: " + out
		}
		return ""
	})
	k.run(t, "delete", "-n", namespace, "configmap", "root", "--cascade=foreground", "--wait=false")
	const refusal = `admission webhook "deny.example.com" denied the request: it is kept`
	slow := []string{"slow: ", "next: wait"}
	for _, address := range []string{"", "none"} { // reported by the collector; from its Event
		agrees(t, p, []string{"explain", "-n", namespace, "configmap/root", "--address", address}, []string{"ConfigMap denied/root: stuck", refusal}, slow)
	}
	agrees(t, p, []string{"stories", root}, []string{"being deleted", "waits for ConfigMap denied/kept, refused by webhook deny.example.com", "refused: ConfigMap denied/kept", refusal}, nil)

	k.run(t, "delete", "namespace", namespace, "--wait=false")
	for _, address := range []string{"", "none"} { // the child is stuck, too
		agrees(t, p, []string{"explain", "namespace/" + namespace, "--address", address}, []string{"Namespace denied: stuck", "stuck: ConfigMap denied/kept is left", refusal}, slow)
	}
	k.run(t, "delete", "validatingwebhookconfiguration", "denying")
	k.run(t, "wait", "--for=delete", "namespace/"+namespace, "--timeout=2m")
	agrees(t, p, []string{"stories", root}, []string{"ConfigMap denied/root: deleted", "was refused: ConfigMap denied/kept", refusal}, nil)
	agrees(t, p, []string{"explain", "configmap/root", "-n", namespace}, []string{"ConfigMap denied/root: gone", "deleted by ", "the server refused ConfigMap denied/kept for ", refusal}, nil)
	agrees(t, p, []string{"explain", "namespace/" + namespace}, []string{"Namespace denied: gone", "deleted by "}, nil)
}

// R31: a definition whose conversion webhook is gone is stuck, and so is an instance in a namespace that is deleted, with
// the words of the server. The status, an Event and the story have it. Both go once no webhook converts the instances.
func TestRefusalOfAConversionIsNamed(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", noNodes)
	k := ourKubectl(p)
	const namespace, definition = "convert", "crd/gadgets.convert.example.com"
	createGadget(t, k, namespace)
	k.run(t, "patch", definition, "--type=json", "-p",
		`[{"op":"replace","path":"/spec/versions/0/storage","value":false},{"op":"replace","path":"/spec/versions/1/storage","value":true}]`)
	eventually.Agrees(t, func() string {
		if versions := k.get(t, "", definition, "{.status.storedVersions}"); versions != `["v1","v2"]` {
			return versions
		}
		return ""
	})
	uid := k.get(t, "", definition, "{.metadata.uid}")
	k.run(t, "delete", definition, "--wait=false")
	const refusal = "conversion webhook for convert.example.com/"
	slow := []string{"slow: ", "next: wait"}
	for _, address := range []string{"", "none"} { // the report of a refusal that may end by itself is unknown at first
		agrees(t, p, []string{"explain", definition, "--address", address}, []string{refusal, "next: bring back the conversion webhook"}, slow)
	}
	agrees(t, p, []string{"status"}, []string{"CustomResourceDefinition.apiextensions.k8s.io gadgets.convert.example.com", "delete-instances", "conversion Gadget.convert.example.com"}, nil)
	agrees(t, p, []string{"stories", uid}, []string{"being deleted", "refused by the conversion of Gadget.convert.example.com"}, nil)

	k.run(t, "delete", "namespace", namespace, "--wait=false")
	for _, address := range []string{"", "none"} {
		agrees(t, p, []string{"explain", "namespace/" + namespace, "--address", address}, []string{"Gadget.convert.example.com convert/g is left", refusal}, slow)
	}
	eventually.Agrees(t, func() string {
		events := k.run(t, "get", "events", "-n", "default", "--field-selector", "reason=GarbageCollectionRefused,involvedObject.uid="+uid, "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(events, "the API server cannot delete its instances: "+refusal) {
			return "the Event: " + events
		}
		return ""
	})
	k.run(t, "patch", definition, "--type=merge", "-p", `{"spec":{"conversion":{"strategy":"None","webhook":null}}}`)
	k.run(t, "wait", "--for=delete", definition, "namespace/"+namespace, "--timeout=2m")
	agrees(t, p, []string{"explain", definition}, []string{"gadgets.convert.example.com: gone", "deleted by ", "the server refused CustomResourceDefinition"}, nil)
	agrees(t, p, []string{"stories", uid}, []string{"was refused: CustomResourceDefinition.apiextensions.k8s.io gadgets.convert.example.com"}, nil)
}
