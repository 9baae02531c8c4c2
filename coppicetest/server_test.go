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
	code, answer, err := s.try(method, path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	return code, answer
}

func (s *server) try(method, path, body string) (int, object, error) {
	answer, err := s.open(method, path, body)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, nil, err
	}
	var decoded object
	if err := json.Unmarshal(data, &decoded); err != nil {
		return answer.StatusCode, nil, fmt.Errorf("%s %s: %d %s", method, path, answer.StatusCode, data)
	}
	return answer.StatusCode, decoded, nil
}

// open sends a request and returns the answer, whose body the caller closes.
func (s *server) open(method, path, body string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.plane.Host+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	request.Header.Set("User-Agent", "operator/1")
	return s.http.Do(request)
}

// watch opens a watch that stays until the test ends, and reads no event of it.
func (s *server) watch(path string) {
	s.t.Helper()
	answer, err := s.open(http.MethodGet, path, "")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { answer.Body.Close() })
	if answer.StatusCode != http.StatusOK {
		s.t.Fatalf("watch %s: %s", path, answer.Status)
	}
}

// persist sends a request until the server has carried it out or refuses it for good, as an operator does on a server with
// faults. again reports whether an earlier one may have been carried out.
func (s *server) persist(method, path, body string) (code int, answer object, again bool) {
	s.t.Helper()
	const most = 100 // of a hundred requests, a harsh plan lets ninety pass
	var err error
	for range most {
		code, answer, err = s.try(method, path, body)
		if err == nil && code != http.StatusTooManyRequests && code < http.StatusInternalServerError {
			return code, answer, again
		}
		again = true
	}
	s.t.Fatalf("%s %s: refused %d times, with %d %v at last (%v)", method, path, most, code, answer, err)
	return code, answer, again
}

// create creates an object below a path.
func (s *server) create(path, body string) object {
	s.t.Helper()
	code, created, again := s.persist(http.MethodPost, path, body)
	if code == http.StatusConflict && again {
		var sent struct{ Metadata struct{ Name string } }
		if err := json.Unmarshal([]byte(body), &sent); err != nil {
			s.t.Fatal(err)
		}
		if code, created, _ = s.persist(http.MethodGet, path+"/"+sent.Metadata.Name, ""); code == http.StatusOK {
			return created
		}
	}
	if code != http.StatusCreated {
		s.t.Fatalf("create in %s: %d %v", path, code, created["message"])
	}
	return created
}

// delete deletes an object, with options.
func (s *server) delete(path, options string) {
	s.t.Helper()
	code, answer, again := s.persist(http.MethodDelete, path, options)
	if code/100 != 2 && (!again || code != http.StatusNotFound) {
		s.t.Fatalf("delete %s: %d %v", path, code, answer["message"])
	}
}

// letGo removes the finalizers of an object.
func (s *server) letGo(path string) {
	s.t.Helper()
	code, answer, again := s.persist(http.MethodPatch, path, `{"metadata":{"finalizers":null}}`)
	if code != http.StatusOK && (!again || code != http.StatusNotFound) {
		s.t.Fatalf("remove the finalizers of %s: %d %v", path, code, answer["message"])
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
