package coppicetest_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/coppicetest"
)

// object is an object of the API, as these tests have no types of it.
type object map[string]any

func (o object) metadata() object {
	m, _ := o["metadata"].(map[string]any)
	return m
}

func (o object) uid() string {
	uid, _ := o.metadata()["uid"].(string)
	return uid
}

// server sends a test's requests to a plane.
type server struct {
	t     testing.TB
	plane *coppicetest.Plane
	http  *http.Client
}

func newServer(t testing.TB, plane *coppicetest.Plane) *server {
	t.Helper()
	roots := x509.NewCertPool()
	pair, err := tls.X509KeyPair(plane.Certificate, plane.Key)
	if err != nil || !roots.AppendCertsFromPEM(plane.CertificateAuthority) {
		t.Fatalf("the credentials of the plane: %v", err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return &server{t, plane, &http.Client{Transport: transport}}
}

// send sends a request and returns the code and the decoded answer.
func (s *server) send(method, path, body string) (int, object) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.plane.Host+path, bytes.NewReader([]byte(body)))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	request.Header.Set("User-Agent", "operator/1")
	answer, err := s.http.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	var decoded object
	if err := json.Unmarshal(data, &decoded); err != nil {
		s.t.Fatalf("%s %s: %d %s", method, path, answer.StatusCode, data)
	}
	return answer.StatusCode, decoded
}

// create creates an object below a path.
func (s *server) create(path, body string) object {
	s.t.Helper()
	code, created := s.send(http.MethodPost, path, body)
	if code != http.StatusCreated {
		s.t.Fatalf("create in %s: %d %v", path, code, created["message"])
	}
	return created
}

// delete deletes an object, with options.
func (s *server) delete(path, options string) {
	s.t.Helper()
	if code, answer := s.send(http.MethodDelete, path, options); code/100 != 2 {
		s.t.Fatalf("delete %s: %d %v", path, code, answer["message"])
	}
}

const configMaps = "/api/v1/namespaces/default/configmaps"

// configMap creates a ConfigMap that is owned by other objects, and has more metadata.
func (s *server) configMap(name, more string, owners ...object) object {
	s.t.Helper()
	var references []string
	for _, owner := range owners {
		references = append(references, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","name":%q,"uid":%q,"blockOwnerDeletion":true}`,
			owner.metadata()["name"], owner.uid()))
	}
	return s.create(configMaps, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"ownerReferences":[%s]%s}}`,
		name, strings.Join(references, ","), more))
}
