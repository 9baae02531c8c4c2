package coppicetest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/coppicetest"
)

// Clients meet the faults of a plan until another one comes. With this seed, the first write is not answered with 429, whose
// text is not JSON.
func TestFaultsOfAnOperator(t *testing.T) {
	t.Parallel()
	const made = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`
	plane := coppicetest.Start(t, coppicetest.WithFaults("seed=2; refused-write rate=1 client=operator"))
	s := newServer(t, plane)
	if code, answer := s.send(http.MethodPost, configMaps, made); code < http.StatusInternalServerError {
		t.Errorf("a write that is to be refused: %d %v", code, answer)
	}
	faults := plane.Faulted(t)
	if len(faults) != 1 || !strings.Contains(faults[0].String(), " operator: create configmaps default: refused: 50") {
		t.Errorf("the faults are %v", faults)
	}
	plane.Faults(t, "")
	if code, answer := s.send(http.MethodPost, configMaps, made); code != http.StatusCreated {
		t.Errorf("without faults: %d %v", code, answer)
	}
	if again := plane.Faulted(t); len(again) != 1 {
		t.Errorf("without faults: %v", again)
	}
}

// An operator that creates a child again before its watch shows the first one has acted on an old state. The next test
// with the plane begins without that.
func TestAnomaliesOfAnOperator(t *testing.T) {
	t.Parallel()
	plane := coppicetest.Start(t, coppicetest.WithFaults("watch-lag delay=1h client=operator"))
	s := newServer(t, plane)
	_, list := s.send(http.MethodGet, configMaps, "")
	s.watch(fmt.Sprint(configMaps, "?watch=true&resourceVersion=", list.metadata()["resourceVersion"]))
	_, owner := s.send(http.MethodPost, configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"owner"}}`)
	child := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"child-","ownerReferences":[` +
		`{"apiVersion":"v1","kind":"ConfigMap","name":"owner","controller":true,"uid":"` + owner.uid() + `"}]}}`
	for range 2 {
		if code, answer := s.send(http.MethodPost, configMaps, child); code != http.StatusCreated {
			t.Fatalf("create a child: %d %v", code, answer)
		}
		s.send(http.MethodPut, configMaps+"/owner", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"owner"},"data":{"phase":"ready"}}`)
	}
	found := plane.Anomalies(t)
	if len(found) != 1 || !strings.Contains(found[0].String(), " operator: duplicate-child: the client created configmaps default/child-") {
		t.Errorf("the anomalies are %v", found)
	}
	plane.Reset(t)
	if found := plane.Anomalies(t); len(found) != 0 {
		t.Errorf("after a reset: %v", found)
	}
}
