package cri

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cri-client/pkg/logs"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// The part of a log that becomes a termination message.
const (
	mostLogLines   = 80
	mostLogMessage = 2048 // bytes
)

// cannotRun is the runtime's reason for a container whose process could not start. It has no log.
const cannotRun = "ContainerCannotRun"

// addMessage adds the termination message of an instance that has ended: the text that the container wrote or, if
// the instance failed and its policy is FallbackToLogsOnError, the end of its log.
func (r *Runtime) addMessage(ctx context.Context, uid types.UID, i *lifecycle.Instance, annotations map[string]string) {
	if i.Alive() {
		return
	}
	text := r.store.readMessage(uid, i.Container, i.Attempt)
	policy := corev1.TerminationMessagePolicy(annotations[annotationMessagePolicy])
	if text == "" && policy == corev1.TerminationMessageFallbackToLogsOnError && i.ExitCode != 0 && i.Reason != cannotRun {
		text = r.endOfLog(ctx, uid, i)
	}
	if text == "" {
		return
	}
	if i.Message != "" {
		i.Message += ": "
	}
	i.Message += strings.ToValidUTF8(text, "\uFFFD")
}

// endOfLog returns the end of the log of an instance, or "" if it cannot be read.
func (r *Runtime) endOfLog(ctx context.Context, uid types.UID, i *lifecycle.Instance) string {
	var end lastBytes
	options := &logs.LogOptions{TailLines: new(int64(mostLogLines))}
	if err := logs.ReadLogs(ctx, r.store.log(uid, i.Container, i.Attempt), bare(i.ID), options, r.containers, &end, &end); err != nil {
		return ""
	}
	return string(end)
}

// lastBytes keeps the last mostLogMessage bytes that are written to it.
type lastBytes []byte

// Write implements io.Writer.
func (b *lastBytes) Write(p []byte) (int, error) {
	all := append(*b, p...)
	*b = append(lastBytes(nil), all[max(0, len(all)-mostLogMessage):]...)
	return len(p), nil
}
