package apiserver_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podRequest is a request for the certificate of a pod on a node.
type podRequest struct {
	name, signer, pod, podUID, account, accountUID, node, nodeUID, more string
}

// body returns the request, with a key that is nowhere.
func (r podRequest) body(t *testing.T) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"metadata":{"name":%q%s},"spec":{"signerName":%q,"podName":%q,"podUID":%q,"serviceAccountName":%q,"serviceAccountUID":%q,`+
		`"nodeName":%q,"nodeUID":%q,"stubPKCS10Request":%q}}`,
		r.name, r.more, r.signer, r.pod, r.podUID, r.account, r.accountUID, r.node, r.nodeUID, base64.StdEncoding.EncodeToString(stub))
}

// A node requests certificates for its own pods, by the signers that their volumes name, with true names and UIDs.
func TestNodeRequestsCertificatesOfItsPods(t *testing.T) {
	w := newNodeCluster(t)
	uidOf := func(account string) string {
		a, err := w.admin.CoreV1().ServiceAccounts(w.namespace).Get(t.Context(), account, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return string(a.UID)
	}
	node, err := w.admin.CoreV1().Nodes().Get(t.Context(), w.own, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own, far := w.pods["own"], w.pods["far"]
	valid := podRequest{"a", "example.com/a", "own", string(own.UID), "of-own", uidOf("of-own"), w.own, string(node.UID), ""}
	with := func(change func(*podRequest)) string {
		r := valid
		change(&r)
		return r.body(t)
	}
	path := "/apis/certificates.k8s.io/v1/namespaces/" + w.namespace + "/podcertificaterequests"
	accounts := "/api/v1/namespaces/" + w.namespace + "/serviceaccounts/"
	owner := func(pod *corev1.Pod, more string) string {
		return fmt.Sprintf(`,"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":%q,"uid":%q%s}]`, pod.Name, pod.UID, more)
	}
	for name, test := range map[string]struct {
		forged
		want string
	}{
		"for a pod elsewhere": {create(path, with(func(r *podRequest) {
			r.pod, r.podUID, r.account, r.accountUID = "far", string(far.UID), "of-far", uidOf("of-far")
		})), "no pod far"},
		"as another node":            {create(path, with(func(r *podRequest) { r.node = w.far })), "of node " + w.own + " only"},
		"with another node's uid":    {create(path, with(func(r *podRequest) { r.nodeUID = "x" })), "the uid of nodes"},
		"with another pod's uid":     {create(path, with(func(r *podRequest) { r.podUID = string(far.UID) })), "no pod own"},
		"for another account":        {create(path, with(func(r *podRequest) { r.account = "of-far" })), "no pod own"},
		"with another account's uid": {create(path, with(func(r *podRequest) { r.accountUID = uidOf("of-far") })), "the uid of serviceaccounts"},
		"by another signer":          {create(path, with(func(r *podRequest) { r.signer = "example.com/b" })), "no pod own"},
		"for another owner":          {create(path, with(func(r *podRequest) { r.more = owner(far, "") })), "the only owner"},
		"that blocks":                {create(path, with(func(r *podRequest) { r.more = owner(own, `,"blockOwnerDeletion":true`) })), "the only owner"},
		"that stays":                 {create(path, with(func(r *podRequest) { r.more = `,"finalizers":["example.com/f"]` })), "finalizers"},
		"sign":                       {merge(path+"/a/status", `{"status":{}}`), "podcertificaterequests/status"},
		"list all":                   {get(path), "spec.nodeName"},
		"list another's":             {get(path + "?fieldSelector=spec.nodeName%3D" + w.far), "spec.nodeName"},
		"delete":                     {remove(path+"/a", ""), "cannot delete"},
		"read an account":            {get(accounts + "of-far"), "service account of-far"},
		"attest":                     {create("/apis/certificates.k8s.io/v1/clustertrustbundles", `{"metadata":{"name":"a"}}`), "cannot create"},
	} {
		if code, answer := forge(t, w.config, test.forged); code != http.StatusForbidden || !strings.Contains(answer, test.want) {
			t.Errorf("%s: %d %s, want a refusal that says %q", name, code, answer, test.want)
		}
	}
	for name, f := range map[string]forged{
		"request":            create(path, with(func(r *podRequest) { r.more = owner(own, "") })),
		"wait":               get(path + "?fieldSelector=metadata.name%3Da,spec.nodeName%3D" + w.own),
		"read its account":   get(accounts + "of-own"),
		"read trust bundles": get("/apis/certificates.k8s.io/v1/clustertrustbundles?fieldSelector=spec.signerName%3Dexample.com%2Fa"),
	} {
		if code, answer := forge(t, w.config, f); code != http.StatusOK && code != http.StatusCreated {
			t.Errorf("%s: %d %s", name, code, answer)
		}
	}
}
