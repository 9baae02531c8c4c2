package cri

import (
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// lost is the exit code of a container whose end the runtime does not know.
const lost = 137

// observedSandbox translates the status of a sandbox. A sandbox in the host network has the
// addresses of the host.
func observedSandbox(s *runtimeapi.PodSandboxStatus, hostIPs []string) lifecycle.Sandbox {
	o := lifecycle.Sandbox{
		ID: s.GetId(), Attempt: attemptOf(s.GetMetadata().GetAttempt()),
		Ready: s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY, Created: time.Unix(0, s.GetCreatedAt()),
	}
	if s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE {
		o.IPs = hostIPs
		return o
	}
	if ip := s.GetNetwork().GetIp(); ip != "" {
		o.IPs = append(o.IPs, ip)
	}
	if s.GetNetwork() != nil && len(o.IPs) == 0 && o.Ready {
		o.Ready, o.NoAddress = false, true // no container can run in it
	}
	for _, more := range s.GetNetwork().GetAdditionalIps() {
		o.IPs = append(o.IPs, more.GetIp())
	}
	return o
}

// observedInstance translates the status of a container. It reports false for a container that has
// not been started.
func observedInstance(scheme string, s *runtimeapi.ContainerStatus, now time.Time) (lifecycle.Instance, bool) {
	i := lifecycle.Instance{
		ID: scheme + "://" + s.GetId(), Container: s.GetMetadata().GetName(), Attempt: attemptOf(s.GetMetadata().GetAttempt()),
		Image: s.GetAnnotations()[annotationImage], Backoff: backoffOf(s.GetAnnotations()), Started: instant(s.GetStartedAt(), s.GetCreatedAt()), ImageID: s.GetImageRef(),
	}
	if u := s.GetUser().GetLinux(); u != nil {
		i.User = &corev1.LinuxContainerUser{UID: u.GetUid(), GID: u.GetGid(), SupplementalGroups: u.GetSupplementalGroups()}
	}
	switch s.GetState() {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return i, false
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		i.Finished, i.ExitCode, i.Reason, i.Message = instant(s.GetFinishedAt(), now.UnixNano()), s.GetExitCode(), s.GetReason(), s.GetMessage()
		if s.GetFinishedAt() == 0 && i.ExitCode == 0 {
			i.ExitCode = lost
		}
	case runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_UNKNOWN:
		// A container in an unknown state may be alive.
	}
	return i, true
}

// instant returns a time in nanoseconds, or otherwise if the runtime has not set it.
func instant(nanoseconds, otherwise int64) time.Time {
	if nanoseconds <= 0 {
		nanoseconds = otherwise
	}
	return time.Unix(0, nanoseconds)
}

// attemptOf converts the number of an attempt to the API's int32.
func attemptOf(n uint32) int32 { return int32(min(n, 1<<31-1)) }

func backoffOf(annotations map[string]string) time.Duration {
	n, err := strconv.ParseInt(annotations[annotationBackoff], 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(n) * time.Millisecond
}

// bare returns the runtime's own ID of an instance.
func bare(id string) string {
	if _, after, ok := strings.Cut(id, "://"); ok {
		return after
	}
	return id
}

// isNotFound reports whether the runtime does not have the requested object.
func isNotFound(err error) bool { return status.Code(err) == codes.NotFound }
