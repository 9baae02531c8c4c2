package aggregation

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/coppice-dev/coppice/internal/apiserver/openapi"
)

// maxOpenAPI is the maximum size of an OpenAPI v2 document, in bytes: it describes the whole API of a
// server.
const maxOpenAPI = 64 << 20

// openAPIV2 is the part of a server's OpenAPI v2 document for the group version.
type openAPIV2 struct {
	openapi.Document
	asked time.Time
}

// OpenAPIV2 returns the OpenAPI v2 documents of the group versions whose servers are available and have
// one. It fetches them on first use, and caches them.
func (a *Aggregator) OpenAPIV2(ctx context.Context) []openapi.Document {
	all := a.routes.all()
	if len(all) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, openAPITimeout)
	defer cancel()
	var asking sync.WaitGroup
	for _, b := range all {
		if last := b.openAPIV2.Load(); b.available.Load() && (last == nil || a.config.Now().Sub(last.asked) > openAPIInterval) {
			asking.Go(func() {
				if document, err := a.openAPIV2(ctx, b); err == nil {
					b.openAPIV2.Store(&openAPIV2{document, a.config.Now()})
				}
			})
		}
	}
	asking.Wait()
	var documents []openapi.Document
	for _, b := range all {
		if last := b.openAPIV2.Load(); b.available.Load() && last != nil {
			documents = append(documents, last.Document)
		}
	}
	slices.SortFunc(documents, func(x, y openapi.Document) int { return strings.Compare(x.Version, y.Version) })
	return documents
}

func (a *Aggregator) openAPIV2(ctx context.Context, b *backend) (openapi.Document, error) {
	addresses, err := a.addresses(ctx, b)
	if err != nil {
		return openapi.Document{}, err
	}
	response, err := b.send(ctx, addresses[0], "/openapi/v2", runtime.ContentTypeJSON)
	if err != nil {
		return openapi.Document{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxOpenAPI+1))
	if err != nil {
		return openapi.Document{}, err
	}
	if len(body) > maxOpenAPI {
		return openapi.Document{}, errors.New("the OpenAPI document is too large")
	}
	version := fmt.Sprintf("%s@%x", b.version, sha256.Sum256(body))
	if last := b.openAPIV2.Load(); last != nil && last.Version == version {
		return last.Document, nil
	}
	whole := &spec.Swagger{}
	if err := json.Unmarshal(body, whole); err != nil {
		return openapi.Document{}, err
	}
	if whole.Paths == nil {
		return openapi.Document{}, errors.New("the OpenAPI document has no paths")
	}
	part := aggregator.FilterSpecByPathsWithoutSideEffects(whole, []string{"/apis/" + b.version.String() + "/"})
	return openapi.Document{Spec: part, Version: version}, nil
}
