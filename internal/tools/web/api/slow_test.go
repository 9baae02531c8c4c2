package api_test

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/testing/pipes"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// wordy is a cluster with more records than the buffers of a connection hold.
type wordy struct{ cluster }

// Records implements api.Source.
func (wordy) Records(after uint64) []report.Record {
	var all []report.Record
	for n := after; n < 2000; n++ {
		object := report.RecordedObject{Kind: "ConfigMap", Namespace: "shop", Name: "copy", UID: "copy"}
		all = append(all, report.Record{Number: n + 1, Action: report.ActionDelete, Object: object})
	}
	return all
}

// A client that does not read its streams keeps their seats no longer than one that does, with both versions of HTTP: the
// others are refused only until then.
func TestStreamsThatNobodyReadEnd(t *testing.T) {
	for name, isTwo := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var protocols http.Protocols
				protocols.SetHTTP1(!isTwo)
				protocols.SetUnencryptedHTTP2(isTwo)
				handler := api.Handler(wordy{}, access)
				listener := pipes.Listen()
				server := &http.Server{Handler: handler, Protocols: &protocols, ReadHeaderTimeout: time.Minute}
				served := make(chan error, 1)
				go func() { served <- server.Serve(listener) }()
				transport := &http.Transport{DialContext: listener.Dial, Protocols: &protocols, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}}
				var unread []io.Closer
				for {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server"+api.Watch, http.NoBody)
					if err != nil {
						t.Fatal(err)
					}
					r.Header.Set("Authorization", "Bearer "+everything)
					response, err := transport.RoundTrip(r)
					if err != nil {
						t.Fatal(err)
					}
					unread = append(unread, response.Body)
					if response.StatusCode == http.StatusTooManyRequests {
						break
					}
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if code := serve(handler, everything, api.Watch); code != http.StatusOK {
					t.Errorf("after a minute, another stream gets %d: %d streams have not ended", code, len(unread)-1)
				}
				for _, body := range unread {
					_ = body.Close()
				}
				transport.CloseIdleConnections()
				if err := server.Close(); err != nil {
					t.Error(err)
				}
				if err := <-served; !errors.Is(err, http.ErrServerClosed) {
					t.Error(err)
				}
			})
		})
	}
}
