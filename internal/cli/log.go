package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"

	"k8s.io/klog/v2"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// newLogger returns a logger to w, as text or JSON. klog, which the Kubernetes libraries use,
// writes to it too. Their messages at level Info serve only their developers, so the logger shows them
// only at level debug, and so all messages that they log after ctx has ended.
func newLogger(ctx context.Context, w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usageError{fmt.Errorf("--log-level %s: choose debug, info, warn or error", strconv.Quote(level))}
	}
	libraries := max(l, slog.LevelError)
	if l <= slog.LevelDebug {
		libraries = l
	}
	handler := func(level slog.Level) slog.Handler {
		return slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: boundedAttr})
	}
	switch format {
	case "text":
	case "json":
		handler = func(level slog.Level) slog.Handler {
			return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: boundedAttr})
		}
	default:
		return nil, usageError{fmt.Errorf("--log-format %s: choose text or json", strconv.Quote(format))}
	}
	klog.StopFlushDaemon() // it reads the logger without a lock, and slog has nothing to flush
	klog.SetSlogLogger(slog.New(newLibraryLog(handler(libraries), ctx.Done())).With("from", "library"))
	return slog.New(handler(l)), nil
}

// maxAttr bounds the length of a text in the log, in bytes: objects and answers of servers may have texts of any
// length.
const maxAttr = 2048

// boundedAttr cuts long texts in the log.
func boundedAttr(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		if text := a.Value.String(); len(text) > maxAttr {
			a.Value = slog.StringValue(ownership.Excerpt(text, maxAttr))
		}
	case slog.KindAny:
		text := fmt.Sprint(a.Value.Any()) // of an error, a list of names, or a value with a method String
		if _, isError := a.Value.Any().(error); isError || len(text) > maxAttr {
			a.Value = slog.StringValue(ownership.Excerpt(text, maxAttr))
		}
	default:
	}
	return a
}
