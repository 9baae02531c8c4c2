package simulated

import (
	"context"
	"io"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/node/kubeletapi"
)

// since returns the lines of an instance after the first n that it has ever written. The caller
// holds the lock.
func (i *instance) since(n int) []kubeletapi.LogLine {
	all := i.lines()
	var lines []kubeletapi.LogLine
	for _, line := range all[min(max(n-i.dropped, 0), len(all)):] {
		lines = append(lines, kubeletapi.LogLine{At: line.at, Text: line.text + "\n"})
	}
	return lines
}

// tell wakes the followers of an instance's log. The caller holds the lock.
func (i *instance) tell() {
	if i.news != nil {
		close(i.news)
		i.news = nil
	}
}

// watch returns a channel that is closed when the instance writes a line or is removed. The caller
// holds the lock.
func (i *instance) watch() <-chan struct{} {
	if i.news == nil {
		i.news = make(chan struct{})
	}
	return i.news
}

// follower copies the log of an instance until the instance ends.
type follower struct {
	runtime *Runtime
	run     *instance
	options corev1.PodLogOptions // for the lines to come
	seen    int                  // the number of lines that were processed
}

// copyTo writes the log until the instance or ctx ends, or the requested number of bytes is written.
func (f *follower) copyTo(ctx context.Context, w io.Writer) error {
	for {
		text, news := f.next()
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
		if limit := f.options.LimitBytes; limit != nil {
			*limit -= int64(len(text))
			if *limit <= 0 {
				return nil
			}
		}
		if news == nil {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// next returns the text of the lines that were written since the last call, and a channel that is
// closed when there may be more. The channel is nil if there will be no more.
func (f *follower) next() (text string, news <-chan struct{}) {
	f.runtime.mu.Lock()
	defer f.runtime.mu.Unlock()
	lines := f.run.since(f.seen)
	text = kubeletapi.SelectLines(lines, &f.options, f.runtime.clock.Now())
	f.seen = f.run.dropped + len(f.run.lines())
	f.options.TailLines = nil
	if limit := f.options.LimitBytes; limit != nil {
		f.options.LimitBytes = new(*limit)
	}
	if f.run.Alive() && !f.run.gone {
		news = f.run.watch()
	}
	return text, news
}

// followed is the reader of a followed log. Close ends it.
type followed struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (f *followed) Close() error {
	f.cancel()
	return f.PipeReader.Close()
}
