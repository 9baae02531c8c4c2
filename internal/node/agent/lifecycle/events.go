package lifecycle

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Event is a Kubernetes Event of a pod or of one of its containers. A kubelet uses the same reasons
// and messages.
type Event struct {
	Container string // "" for the pod
	Type      string // corev1.EventTypeNormal or corev1.EventTypeWarning
	Reason    string
	Message   string
}

// eventsOf returns the Events of a step that begins: the first step that ends a living instance, or
// the removal of a sandbox for its replacement.
func (d *decision) eventsOf(s Step) []Event {
	var id, container string
	switch s := s.(type) {
	case RemoveSandbox:
		if d.intent != run {
			return nil
		}
		return []Event{{"", corev1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created."}}
	case PreStop:
		id, container = s.ID, s.Container
	case Signal:
		id, container = s.ID, s.Container
	case Kill:
		id, container = s.ID, s.Container
	case CreateSandbox, StopSandbox, Start, GiveUp, Remove, Probe, Resize, Delete:
		return nil
	}
	t := d.state.peek(id)
	if d.in.Gone || !t.hookBegan.IsZero() || !t.signaled.IsZero() || !t.killed.IsZero() {
		return nil
	}
	return []Event{{container, corev1.EventTypeNormal, "Killing", d.whyKilled(container, t)}}
}

// whyKilled returns the message of the Event about a container that is being ended.
func (d *decision) whyKilled(name string, t instanceState) string {
	i := slices.IndexFunc(d.containers, func(u container) bool { return u.spec.Name == name })
	why := ""
	for _, kind := range []ProbeKind{Startup, Liveness} {
		if t.probes[kind].outcome == failing {
			why = fmt.Sprintf("failed %s probe", strings.ToLower(kind.String()))
		}
	}
	if t.replaced {
		why = "definition changed"
	}
	switch {
	case d.intent != run || why == "" || i < 0:
		return "Stopping container " + name
	case d.containers[i].role == sidecar:
		return fmt.Sprintf("Init container %s %s", name, why)
	case t.replaced || d.containers[i].policy != corev1.RestartPolicyNever:
		why += ", will be restarted"
	}
	return fmt.Sprintf("Container %s %s", name, why)
}

// EventsOf returns the Events of a step that has ended. A step that was cancelled has none.
func EventsOf(s Step, err error) []Event {
	if errors.Is(err, ErrCanceled) {
		return nil
	}
	warning := func(container, reason, message string) []Event {
		return []Event{{container, corev1.EventTypeWarning, reason, message}}
	}
	switch s := s.(type) {
	case Start:
		if err == nil {
			return []Event{{s.Container, corev1.EventTypeNormal, "Created", "Container created"}, {s.Container, corev1.EventTypeNormal, "Started", "Container started"}}
		}
		return failedStart(s.Container, err)
	case CreateSandbox:
		switch {
		case err == nil:
		case isStartError(err):
			return warning("", "FailedMount", "Unable to attach or mount volumes: "+err.Error())
		default:
			return warning("", "FailedCreatePodSandBox", "Failed to create pod sandbox: "+err.Error())
		}
	case Probe:
		return unhealthy(s, err)
	case PreStop:
		if err != nil {
			return warning(s.Container, "FailedPreStopHook", "PreStopHook failed")
		}
	case StopSandbox, RemoveSandbox, GiveUp, Remove, Signal, Kill, Resize, Delete:
	}
	return nil
}

// unhealthy returns the Event of a probe that has failed or could not be carried out. Without a cause it has nothing to
// say to the user.
func unhealthy(s Probe, err error) []Event {
	result, cause := "failed", err
	if undecided, ok := errors.AsType[UndecidedError](err); ok {
		result, cause = "errored and resulted in unknown state", undecided.Err
	}
	if cause == nil {
		return nil
	}
	return []Event{{s.Container, corev1.EventTypeWarning, "Unhealthy", fmt.Sprintf("%s probe %s: %v", s.Kind, result, cause)}}
}

// PostStartHookError is the reason of a StartError if the container has started but its postStart
// hook failed.
const PostStartHookError = "PostStartHookError"

// failedStart returns the Events of a container that failed to start.
func failedStart(container string, err error) []Event {
	known, _ := errors.AsType[StartError](err)
	failed := Event{container, corev1.EventTypeWarning, "Failed", "Error: " + err.Error()}
	created := Event{container, corev1.EventTypeNormal, "Created", "Container created"}
	switch known.Reason {
	case "RunContainerError":
		return []Event{created, failed}
	case PostStartHookError: // the output of the hook may be secret
		return []Event{
			created,
			{container, corev1.EventTypeNormal, "Started", "Container started"},
			{container, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed"},
			{container, corev1.EventTypeNormal, "Killing", "FailedPostStartHook"},
		}
	case errImagePull:
		return []Event{{container, corev1.EventTypeWarning, "Failed", capital(err.Error())}, {container, corev1.EventTypeWarning, "Failed", "Error: ErrImagePull"}}
	case "InvalidImageName", "ImageInspectError":
		failed.Reason, failed.Message = "InspectFailed", capital(err.Error())
	case "ErrImageNeverPull":
		failed.Reason, failed.Message = "ErrImageNeverPull", capital(err.Error())
	}
	return []Event{failed}
}

func capital(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// EventsBetween returns the Events of a change of a pod's status: back-offs that begin, and an
// expired deadline.
func EventsBetween(pod *corev1.Pod, now *corev1.PodStatus) []Event {
	var all []Event
	if now.Reason == deadlineExceeded && pod.Status.Reason != deadlineExceeded {
		all = append(all, Event{"", corev1.EventTypeNormal, deadlineExceeded, now.Message})
	}
	for _, statuses := range [][2][]corev1.ContainerStatus{
		{pod.Status.InitContainerStatuses, now.InitContainerStatuses}, {pod.Status.ContainerStatuses, now.ContainerStatuses},
	} {
		for i := range statuses[1] {
			s := &statuses[1][i]
			if before := statusOf(statuses[0], s.Name); before == nil || waitsFor(before) != waitsFor(s) {
				all = append(all, backOff(pod, s)...)
			}
		}
	}
	return all
}

func waitsFor(s *corev1.ContainerStatus) string {
	if s.State.Waiting == nil {
		return ""
	}
	return s.State.Waiting.Reason
}

// backOff returns the Event of a container that is in back-off.
func backOff(pod *corev1.Pod, s *corev1.ContainerStatus) []Event {
	switch waitsFor(s) {
	case "CrashLoopBackOff":
		return []Event{{
			s.Name, corev1.EventTypeWarning, "BackOff",
			fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", s.Name, pod.Name, pod.Namespace, pod.UID),
		}}
	case "ImagePullBackOff":
		return []Event{{s.Name, corev1.EventTypeNormal, "BackOff", fmt.Sprintf("Back-off pulling image %q", s.Image)}}
	}
	return nil
}
