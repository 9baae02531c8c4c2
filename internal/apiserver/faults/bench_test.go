package faults

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/utils/clock"
)

// BenchmarkWithoutPlan is what the filters cost where there are no faults. A request takes some 100 µs besides.
func BenchmarkWithoutPlan(b *testing.B) {
	answer := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	i := NewInjector(Plan{}, Config{Clock: clock.RealClock{}})
	request, recorder := httptest.NewRequestWithContext(b.Context(), http.MethodPut, "/api/v1/namespaces/default/configmaps/a", nil), httptest.NewRecorder()
	for name, handler := range map[string]http.Handler{"with": i.Answers(i.Requests(answer)), "without": answer} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				handler.ServeHTTP(recorder, request)
			}
		})
	}
}
