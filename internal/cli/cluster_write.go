package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/tools/restore"
)

const (
	// writeTimeout bounds a write: an API server answers within a minute.
	writeTimeout = 65 * time.Second
	// busyTimeout bounds how long a server may put off a write.
	busyTimeout = time.Minute
	// agentBusyTimeout is when a call of an agent stops asking a busy server again: clients commonly end calls after a minute.
	agentBusyTimeout = 30 * time.Second
)

// forWrite returns a context for one write. It does not end with ctx: the server may have made a write that was
// cancelled, and the report would be wrong.
func forWrite(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
}

// errUnanswered is the error of a write that the server may have made.
var errUnanswered = errors.New("no answer of the server says whether that is done")

// answerOf returns the error of a write, with errUnanswered unless it is an answer of the server that decides about the write.
func answerOf(err error) error {
	if restore.IsInDoubt(err) {
		return fmt.Errorf("%w: %w", errUnanswered, err)
	}
	return err
}

// clientWithoutRepeats returns a client that sends each write once: the commands repeat the writes that a busy server puts off.
func clientWithoutRepeats(config *rest.Config) (metadata.Interface, error) {
	client, err := metadata.NewForConfig(restore.Unrepeated(config))
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return client, nil
}
