package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// writeTimeout bounds a write: an API server answers within a minute.
const writeTimeout = 65 * time.Second

// forWrite returns a context for one write. It does not end with ctx: the server may have made a write that was
// cancelled, and the report would be wrong.
func forWrite(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
}

// errUnanswered is the error of a write that the server may have made.
var errUnanswered = errors.New("no answer of the server says whether that is done")

// answerOf returns the error of a write, with errUnanswered unless it is an answer of the server.
func answerOf(err error) error {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		return err
	}
	return fmt.Errorf("%w: %w", errUnanswered, err)
}
