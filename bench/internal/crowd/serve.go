package crowd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"github.com/coppice-dev/coppice/bench/internal/credentials"
	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

const (
	// Command is the first argument of a process that serves a crowd; the number of objects and a directory follow.
	Command = "serve-crowd"
	// Ready is the line that the process prints when it serves. The directory then has the kubeconfig.
	Ready = "ready"
)

const (
	// mostStreams is the number of concurrent requests of one connection: watches, and the workers of a collector.
	mostStreams = 1000
	// headerTimeout bounds the time that a client takes to send a request.
	headerTimeout = 30 * time.Second
)

// Serve serves a crowd on loopback until ctx ends. args are the number of objects and a directory for the credentials and
// the kubeconfig.
func Serve(ctx context.Context, args []string, out io.Writer) error {
	const want = 2
	if len(args) != want {
		return fmt.Errorf("usage: %s OBJECTS DIRECTORY", Command)
	}
	objects, err := strconv.Atoi(args[0])
	if err != nil {
		return fmt.Errorf("%q is not a number of objects: %w", args[0], err)
	}
	population, err := NewPopulation(objects)
	if err != nil {
		return err
	}
	listener, security, err := listen(ctx, args[1])
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: NewServer(NewStore(population, stopwatch.Now)), ReadHeaderTimeout: headerTimeout,
		TLSConfig: security, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: mostStreams},
		ErrorLog: log.New(io.Discard, "", 0), // clients are killed
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // its watches never end
	fmt.Fprintln(out, Ready)
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the crowd: %w", err)
	}
	return nil
}

// listen listens on loopback for clients with a certificate, and writes the credentials and a kubeconfig into a directory.
func listen(ctx context.Context, dir string) (net.Listener, *tls.Config, error) {
	keys, err := credentials.Write(dir)
	if err != nil {
		return nil, nil, err
	}
	serving, err := tls.LoadX509KeyPair(filepath.Join(dir, credentials.ServingFile), filepath.Join(dir, credentials.ServingKeyFile))
	if err != nil {
		return nil, nil, fmt.Errorf("load the serving certificate: %w", err)
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(keys.Authority) {
		return nil, nil, errors.New("the certificate authority cannot be read")
	}
	plain, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, fmt.Errorf("listen: %w", err)
	}
	if err := credentials.WriteKubeconfig(filepath.Join(dir, credentials.KubeconfigFile), "https://"+plain.Addr().String(), keys); err != nil {
		return nil, nil, errors.Join(err, plain.Close())
	}
	return plain, &tls.Config{
		Certificates: []tls.Certificate{serving}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"},
	}, nil
}
