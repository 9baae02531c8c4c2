package pace

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// AnswerOf returns the answer to a request, as far as it shows who has given it. It reads a bounded part of the body, only
// of answers that need it, and puts it back.
func AnswerOf(request *http.Request, response *http.Response) refusal.Answer {
	a := refusal.Answer{
		Code: response.StatusCode, Path: request.URL.Path,
		ContentType: response.Header.Get("Content-Type"), AuditID: response.Header.Get("Audit-Id"),
	}
	if a.NeedsBody() && response.Body != nil {
		a.Body, _ = io.ReadAll(io.LimitReader(response.Body, refusal.MaxStatus)) // the caller gets the error, too
		response.Body = putBack{io.MultiReader(bytes.NewReader(a.Body), response.Body), response.Body}
	}
	return a
}

// putBack is a body whose first bytes were read before.
type putBack struct {
	io.Reader
	io.Closer
}

// evidence is what an answer shows of the server.
type evidence struct {
	isServers    bool // an API server has given it
	endsSilence  bool // and does not fail
	showsObjects bool
}

func evidenceOf(a refusal.Answer) evidence {
	return evidence{a.IsFromServer(), a.EndsSilence(), a.ShowsObjects()}
}

// isDoubtful reports whether something may have answered in place of a server that is away. Requests for the core group go
// to no server behind an APIService.
func isDoubtful(request *http.Request, e evidence) bool {
	return strings.Contains(request.URL.Path, "/api/v1/") && !e.isServers
}
