// Command webhook is an admission webhook that refuses everything, for a pod.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"
)

// review is an AdmissionReview.
type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID string `json:"uid"`
}

type response struct {
	UID     string            `json:"uid"`
	Allowed bool              `json:"allowed"`
	Status  map[string]string `json:"status"`
}

func main() {
	address := flag.String("address", ":8443", "address to serve on")
	dir := flag.String("dir", "/out", "directory with tls.crt and tls.key")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	server := &http.Server{Addr: *address, ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(refuse)}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServeTLS(*dir+"/tls.crt", *dir+"/tls.key"); !errors.Is(err, http.ErrServerClosed) {
		log.Print(err)
	}
}

func refuse(w http.ResponseWriter, r *http.Request) {
	var asked review
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Request == nil {
		http.Error(w, "no request", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review{APIVersion: asked.APIVersion, Kind: asked.Kind, Response: &response{
		UID: asked.Request.UID, Status: map[string]string{"message": "a webhook in a pod refuses it"},
	}})
}
