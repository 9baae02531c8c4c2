package coppicetest_test

import (
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
