package crowd

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/bench/internal/credentials"
)

// BenchmarkInitialEvents is the cost of an object in a list by watch, over TLS and HTTP/2, for the server and a client that
// only reads.
func BenchmarkInitialEvents(b *testing.B) {
	dir := b.TempDir()
	out, in := io.Pipe()
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, []string{"1000000", dir}, in) }()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		b.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, credentials.KubeconfigFile))
	if err != nil {
		b.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		b.Fatal(err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/api/v1/pods?watch=true&sendInitialEvents=true&timeoutSeconds=3600", nil)
	if err != nil {
		b.Fatal(err)
	}
	request.Header.Set("Accept", runtime.ContentTypeProtobuf+";as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	response, err := client.Do(request)
	if err != nil {
		b.Fatal(err)
	}
	events := bufio.NewReaderSize(response.Body, 64<<10)
	for b.Loop() {
		header, err := events.Peek(lengthBytes)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := events.Discard(lengthBytes + int(binary.BigEndian.Uint32(header))); err != nil {
			b.Fatal(err)
		}
	}
	stop()
	_ = response.Body.Close()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}
