package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	client        = certificatesv1.KubeAPIServerClientSignerName
	kubeletClient = certificatesv1.KubeAPIServerClientKubeletSignerName
	kubeletServer = certificatesv1.KubeletServingSignerName
)

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func encode(t *testing.T, content *x509.CertificateRequest) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, content, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func nodeRequest() *x509.CertificateRequest {
	return &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}}}
}

// signing returns a request that was created at the epoch.
func signing(t *testing.T, signer string, content *x509.CertificateRequest, usages ...certificatesv1.KeyUsage) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: metav1.NewTime(epoch)},
		Spec:       certificatesv1.CertificateSigningRequestSpec{Request: encode(t, content), SignerName: signer, Usages: usages, Username: "ann"},
	}
}

// with adds conditions that were updated at the epoch.
func with(csr *certificatesv1.CertificateSigningRequest, conditions ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
	for _, condition := range conditions {
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: condition, Status: corev1.ConditionTrue, LastUpdateTime: metav1.NewTime(epoch),
		})
	}
	return csr
}

// issued adds a certificate that ends after a time.
func issued(t *testing.T, csr *certificatesv1.CertificateSigningRequest, lifetime time.Duration) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: epoch, NotAfter: epoch.Add(lifetime)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	csr.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return csr
}

// say describes a step in a word or two.
func say(step Step) string {
	switch step := step.(type) {
	case Sign:
		return "sign"
	case Fail:
		return "fail: " + step.Message
	case Review:
		var names []string
		for _, permission := range step.Permissions {
			names = append(names, permission.Subresource)
		}
		return "review " + strings.Join(names, ", ")
	case Delete:
		return "delete"
	case Wait:
		return "wait"
	}
	return fmt.Sprintf("%T", step)
}

func TestRequestIsApprovedByItsContentAndUser(t *testing.T) {
	const approved, denied, failed = certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed
	user := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "ann"}}
	request := func(signer string, content *x509.CertificateRequest) *certificatesv1.CertificateSigningRequest {
		return signing(t, signer, content, "digital signature", "client auth")
	}
	ownNode := request(kubeletClient, nodeRequest())
	ownNode.Spec.Username = "system:node:a"
	terminating := with(request(client, user), approved)
	terminating.DeletionTimestamp = &metav1.Time{Time: epoch}
	noted := request(client, user)
	noted.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: "Noted", Status: corev1.ConditionTrue, LastUpdateTime: metav1.NewTime(epoch)}}
	for name, test := range map[string]struct {
		csr  *certificatesv1.CertificateSigningRequest
		want string
		// kept is how long after the epoch it is deleted; 0: never.
		kept time.Duration
	}{
		"waits for somebody":              {request(client, user), "wait", 24 * time.Hour},
		"of a node, made by another":      {request(kubeletClient, nodeRequest()), "review nodeclient", 24 * time.Hour},
		"of a node, made by itself":       {ownNode, "review selfnodeclient, nodeclient", 24 * time.Hour},
		"of no node, from kubelets":       {request(kubeletClient, user), "wait", 24 * time.Hour},
		"of a node, from another signer":  {request("example.com/a", nodeRequest()), "wait", 24 * time.Hour},
		"of a serving node":               {signing(t, kubeletServer, nodeRequest(), "digital signature", "server auth"), "wait", 24 * time.Hour},
		"a node's that is denied":         {with(request(kubeletClient, nodeRequest()), denied), "wait", time.Hour},
		"approved":                        {with(request(client, user), approved), "sign", 24 * time.Hour},
		"approved, a node's":              {with(request(kubeletClient, nodeRequest()), approved), "sign", 24 * time.Hour},
		"approved, refused by the signer": {with(request(kubeletClient, user), approved), "fail: subject organization is not system:nodes", 24 * time.Hour},
		"approved, of a signer elsewhere": {with(request("example.com/a", user), approved), "wait", 24 * time.Hour},
		"approved, failed":                {with(request(kubeletClient, user), approved, failed), "wait", time.Hour},
		"issued":                          {issued(t, with(request(client, user), approved), 24*time.Hour), "wait", time.Hour},
		"issued for a short time":         {issued(t, with(request(client, user), approved), 10*time.Minute), "wait", 10 * time.Minute},
		"being deleted":                   {terminating, "wait", 0},
		"with a condition of others":      {noted, "wait", 0},
	} {
		t.Run(name, func(t *testing.T) {
			before := test.csr.DeepCopy()
			plan := Decide(test.csr, epoch.Add(test.kept))
			if test.kept > 0 && !plan.DeleteAt.Equal(epoch.Add(test.kept)) || test.kept == 0 && !plan.DeleteAt.IsZero() {
				t.Errorf("deleted at %s, want after %s", plan.DeleteAt, test.kept)
			}
			if got := say(plan.Step); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
			late := "delete"
			if test.kept == 0 {
				late = test.want
			}
			if got := say(Decide(test.csr, epoch.Add(max(test.kept, 48*time.Hour)+time.Second)).Step); got != late {
				t.Errorf("later: %s, want %s", got, late)
			}
			if !reflect.DeepEqual(test.csr, before) {
				t.Error("the decision changes the request")
			}
		})
	}
}

func TestSignersRefuseOtherSubjectsAndUsages(t *testing.T) {
	serving := func(change func(*x509.CertificateRequest)) *x509.CertificateRequest {
		content := nodeRequest()
		content.DNSNames = []string{"a.example.com"}
		change(content)
		return content
	}
	node := func(change func(*x509.CertificateRequest)) *x509.CertificateRequest {
		content := nodeRequest()
		change(content)
		return content
	}
	as := func(common string, organizations ...string) func(*x509.CertificateRequest) {
		return func(r *x509.CertificateRequest) {
			r.Subject = pkix.Name{CommonName: common, Organization: organizations}
		}
	}
	same := func(*x509.CertificateRequest) {}
	email := func(r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@example.com"} }
	uri := func(r *x509.CertificateRequest) { r.URIs = []*url.URL{{Scheme: "spiffe", Host: "a"}} }
	for name, test := range map[string]struct {
		signer  string
		content *x509.CertificateRequest
		usages  string
		want    string
	}{
		"client":                      {client, node(as("ann", "team")), "digital signature,key encipherment,client auth", ""},
		"client, one usage":           {client, node(as("ann")), "client auth", ""},
		"client that serves":          {client, node(as("ann")), "client auth,server auth", "invalid usage for client certificate: server auth"},
		"client of nothing":           {client, node(as("ann")), "digital signature", "missing required usage for client certificate: client auth"},
		"kubelet":                     {kubeletClient, nodeRequest(), "digital signature,client auth", ""},
		"kubelet with RSA":            {kubeletClient, nodeRequest(), "client auth,key encipherment,digital signature", ""},
		"kubelet that serves":         {kubeletClient, nodeRequest(), "digital signature,server auth", "usages did not match [client auth digital signature key encipherment]"},
		"kubelet that does more":      {kubeletClient, nodeRequest(), "digital signature,client auth,server auth", "usages did not match [client auth digital signature key encipherment]"},
		"agent of another node":       {kubeletServer, serving(func(r *x509.CertificateRequest) { r.DNSNames = []string{"System:Node:b"} }), "digital signature,server auth", "DNS subjectAltNames of other nodes are not allowed"},
		"agent of the node":           {kubeletServer, serving(func(r *x509.CertificateRequest) { r.DNSNames = []string{"system:node:a"} }), "digital signature,server auth", ""},
		"kubelet in another group":    {kubeletClient, node(as("system:node:a", "system:nodes", "system:masters")), "digital signature,client auth", "subject organization is not system:nodes"},
		"kubelet of another name":     {kubeletClient, node(as("a", "system:nodes")), "digital signature,client auth", "subject common name does not begin with system:node:"},
		"kubelet with a host name":    {kubeletClient, serving(same), "digital signature,client auth", "DNS subjectAltNames are not allowed"},
		"kubelet with an address":     {kubeletClient, node(func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{{192, 0, 2, 7}} }), "digital signature,client auth", "IP subjectAltNames are not allowed"},
		"kubelet with a mail address": {kubeletClient, node(email), "digital signature,client auth", "Email subjectAltNames are not allowed"},
		"kubelet with a URI":          {kubeletClient, node(uri), "digital signature,client auth", "URI subjectAltNames are not allowed"},
		"server":                      {kubeletServer, serving(same), "digital signature,server auth", ""},
		"server with an address":      {kubeletServer, node(func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{{192, 0, 2, 7}} }), "digital signature,key encipherment,server auth", ""},
		"server without a name":       {kubeletServer, nodeRequest(), "digital signature,server auth", "DNS or IP subjectAltName is required"},
		"server that is a client":     {kubeletServer, serving(same), "digital signature,client auth", "usages did not match [digital signature key encipherment server auth]"},
		"server in no group":          {kubeletServer, serving(as("system:node:a")), "digital signature,server auth", "subject organization is not system:nodes"},
		"server of another name":      {kubeletServer, serving(as("a", "system:nodes")), "digital signature,server auth", "subject common name does not begin with system:node:"},
		"server with a mail address":  {kubeletServer, serving(email), "digital signature,server auth", "Email subjectAltNames are not allowed"},
		"server with a URI":           {kubeletServer, serving(uri), "digital signature,server auth", "URI subjectAltNames are not allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			var usages []certificatesv1.KeyUsage
			for usage := range strings.SplitSeq(test.usages, ",") {
				usages = append(usages, certificatesv1.KeyUsage(usage))
			}
			want := "fail: " + test.want
			if test.want == "" {
				want = "sign"
			}
			csr := with(signing(t, test.signer, test.content, usages...), certificatesv1.CertificateApproved)
			if got := say(Decide(csr, epoch).Step); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

func TestCertificateLastsNoLongerThanItsAuthority(t *testing.T) {
	content := nodeRequest()
	content.DNSNames = []string{"a.example.com"}
	content.IPAddresses = []net.IP{net.IPv4(192, 0, 2, 7)}
	// The certificate of an authority.
	content.ExtraExtensions = []pkix.Extension{{Id: []int{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 0x03, 0x01, 0x01, 0xff}}}
	csr := with(signing(t, kubeletServer, content, "digital signature", "server auth"), certificatesv1.CertificateApproved)
	for seconds, end := range map[int32]time.Duration{
		0:              365*24*time.Hour - backdate,
		600:            10 * time.Minute,
		8*3600 - 1:     8*time.Hour - time.Second,
		8 * 3600:       8*time.Hour - backdate,
		30 * 24 * 3600: 30*24*time.Hour - backdate,
		1<<31 - 1:      365*24*time.Hour - backdate,
	} {
		csr.Spec.ExpirationSeconds = &seconds
		if seconds == 0 {
			csr.Spec.ExpirationSeconds = nil
		}
		step, ok := Decide(csr, epoch).Step.(Sign)
		if !ok {
			t.Fatalf("%d s: %s", seconds, say(Decide(csr, epoch).Step))
		}
		got := step.Template
		if !got.NotBefore.Equal(epoch.Add(-backdate)) || !got.NotAfter.Equal(epoch.Add(end)) {
			t.Errorf("%d s: valid from %s to %s, want to %s", seconds, got.NotBefore, got.NotAfter, epoch.Add(end))
		}
		if got.IsCA || len(got.ExtraExtensions) > 0 || got.KeyUsage != x509.KeyUsageDigitalSignature || !slices.Equal(got.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) {
			t.Errorf("%d s: %+v", seconds, got)
		}
		if got.Subject.CommonName != "system:node:a" || !slices.Equal(got.DNSNames, content.DNSNames) || len(got.IPAddresses) != 1 {
			t.Errorf("%d s: %+v", seconds, got)
		}
	}
}

func TestAgainAt(t *testing.T) {
	for name, test := range map[string]struct {
		plan Plan
		want time.Duration
	}{
		"never deleted":         {Plan{Step: Wait{}}, 0},
		"deleted later":         {Plan{Wait{}, epoch.Add(time.Hour)}, time.Hour + time.Second},
		"deleted now":           {Plan{Wait{}, epoch}, time.Second},
		"reviewed again":        {Plan{Review{}, epoch.Add(time.Hour)}, reviewPeriod},
		"reviewed, and deleted": {Plan{Review{}, epoch.Add(time.Second)}, 2 * time.Second},
	} {
		if got := requeueAfterPlan(test.plan, epoch); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
