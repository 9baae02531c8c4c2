package apiserver_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
)

// BenchmarkClientCertificate measures the share of the verification of the client certificate in the
// processor time of a request, if each request verified it as in k8s.io/apiserver. The client's own time
// counts as part of the request, so the share on the server is larger. This cost is why package auth caches
// verified certificates.
func BenchmarkClientCertificate(b *testing.B) {
	s, err := start(nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.stop(); err != nil {
			b.Error(err)
		}
	}()
	admin, err := s.authority.Admin()
	if err != nil {
		b.Fatal(err)
	}
	client, verification := s.certified(b, admin)
	n := 0
	for name, newRequest := range map[string]func() (*http.Request, error){
		"get": func() (*http.Request, error) {
			return http.NewRequestWithContext(b.Context(), http.MethodGet, s.url+"/api/v1/namespaces/default", http.NoBody)
		},
		"create": func() (*http.Request, error) {
			n++
			body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bench-%d"}}`, n)
			return http.NewRequestWithContext(b.Context(), http.MethodPost, s.url+"/api/v1/namespaces/default/configmaps", strings.NewReader(body))
		},
	} {
		b.Run(name, func(b *testing.B) {
			began := processorTime(b)
			for b.Loop() {
				request, err := newRequest()
				if err != nil {
					b.Fatal(err)
				}
				response, err := client.Do(request)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				if response.StatusCode >= http.StatusBadRequest {
					b.Fatal(response.Status)
				}
			}
			request := (processorTime(b) - began) / time.Duration(b.N)
			b.ReportMetric(float64(request.Microseconds()), "cpu-µs/op")
			b.ReportMetric(float64(verification.Nanoseconds())/1e3, "verify-µs")
			b.ReportMetric(100*float64(verification)/float64(request+verification), "verify-%")
		})
	}
}

// certified returns a client with a certificate, and how long verifying the certificate takes.
func (s *server) certified(b *testing.B, pair auth.Pair) (*http.Client, time.Duration) {
	b.Helper()
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		b.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.authority.Certificate())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}}, ForceAttemptHTTP2: true}
	b.Cleanup(transport.CloseIdleConnections)
	verify := func() (x509.VerifyOptions, bool) {
		options := requestx509.DefaultVerifyOptions()
		options.Roots = roots
		return options, true
	}
	authenticator := requestx509.NewDynamic(verify, requestx509.CommonNameUserConversion)
	request := &http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate.Leaf}}}
	const times = 2000
	began := processorTime(b)
	for range times {
		if _, ok, err := authenticator.AuthenticateRequest(request); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
	return &http.Client{Transport: transport}, (processorTime(b) - began) / times
}

// processorTime returns the user and system time of this process.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
