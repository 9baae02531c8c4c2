package podspec

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// checkHealth checks the probes and the lifecycle hooks of a container.
func (c containerChecks) checkHealth(container *corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if l := container.Lifecycle; l != nil {
		at := at.Child("lifecycle")
		errs = append(errs, c.checkHandler(l.PostStart, at.Child("postStart"))...)
		errs = append(errs, c.checkHandler(l.PreStop, at.Child("preStop"))...)
	}
	errs = append(errs, validateProbe(container.LivenessProbe, at.Child("livenessProbe"))...)
	errs = append(errs, validateProbe(container.ReadinessProbe, at.Child("readinessProbe"))...)
	errs = append(errs, validateProbe(container.StartupProbe, at.Child("startupProbe"))...)

	// Only readiness may require several successes: one success shows that a container is alive or has started.
	errs = append(errs, oneSuccess(container.LivenessProbe, at.Child("livenessProbe"))...)
	errs = append(errs, oneSuccess(container.StartupProbe, at.Child("startupProbe"))...)
	if p := container.ReadinessProbe; p != nil && p.TerminationGracePeriodSeconds != nil {
		errs = append(errs, field.Invalid(at.Child("readinessProbe", "terminationGracePeriodSeconds"), *p.TerminationGracePeriodSeconds, "must not be set for readinessProbes"))
	}
	return errs
}

func oneSuccess(p *corev1.Probe, at *field.Path) field.ErrorList {
	if p == nil || p.SuccessThreshold == 1 {
		return nil
	}
	return field.ErrorList{field.Invalid(at.Child("successThreshold"), p.SuccessThreshold, "must be 1")}
}

func validateProbe(p *corev1.Probe, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := slices.Concat(
		validateAction(action{exec: p.Exec, get: p.HTTPGet, tcp: p.TCPSocket, grpc: p.GRPC}, validate.SetMembers(&p.ProbeHandler), at),
		validate.NotNegative(&p.InitialDelaySeconds, at.Child("initialDelaySeconds")),
		validate.NotNegative(&p.TimeoutSeconds, at.Child("timeoutSeconds")),
		validate.NotNegative(&p.PeriodSeconds, at.Child("periodSeconds")),
		validate.NotNegative(&p.SuccessThreshold, at.Child("successThreshold")),
		validate.NotNegative(&p.FailureThreshold, at.Child("failureThreshold")),
	)
	if grace := p.TerminationGracePeriodSeconds; grace != nil && *grace <= 0 {
		errs = append(errs, field.Invalid(at.Child("terminationGracePeriodSeconds"), *grace, "must be greater than 0"))
	}
	return errs
}

func (c containerChecks) checkHandler(h *corev1.LifecycleHandler, at *field.Path) field.ErrorList {
	if h == nil {
		return nil
	}
	set := validate.SetMembers(h)
	errs := validateAction(action{exec: h.Exec, get: h.HTTPGet, tcp: h.TCPSocket}, set, at)
	grace := ptr.Deref(c.spec.TerminationGracePeriodSeconds, 0)
	if h.Sleep != nil && len(set) == 1 && (h.Sleep.Seconds < 0 || h.Sleep.Seconds > grace) {
		errs = append(errs, field.Invalid(at.Child("sleep"), h.Sleep.Seconds,
			fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", grace)))
	}
	return errs
}

// action is the handler of a probe or a hook. One field is set.
type action struct {
	exec *corev1.ExecAction
	get  *corev1.HTTPGetAction
	tcp  *corev1.TCPSocketAction
	grpc *corev1.GRPCAction
}

// validateAction checks that exactly one handler is set, and that it is valid. If several are set, the first one
// counts.
func validateAction(a action, set []string, at *field.Path) field.ErrorList {
	if len(set) == 0 {
		return field.ErrorList{field.Required(at, "must specify a handler type")}
	}
	var errs field.ErrorList
	for _, extra := range set[1:] {
		errs = append(errs, field.Forbidden(at.Child(extra), "may not specify more than 1 handler type"))
	}
	switch {
	case a.exec != nil:
		if len(a.exec.Command) == 0 {
			errs = append(errs, field.Required(at.Child("exec", "command"), ""))
		}
	case a.get != nil:
		errs = append(errs, validateHTTPGet(a.get, at.Child("httpGet"))...)
	case a.tcp != nil:
		errs = append(errs, validate.TargetPort(a.tcp.Port, at.Child("tcpSocket", "port"))...)
	case a.grpc != nil:
		errs = append(errs, validate.Port(a.grpc.Port, at.Child("grpc", "port"))...)
	}
	return errs
}

func validateHTTPGet(get *corev1.HTTPGetAction, at *field.Path) field.ErrorList {
	return slices.Concat(
		validate.Required(get.Path, at.Child("path")),
		validate.TargetPort(get.Port, at.Child("port")),
		validate.OneOf(get.Scheme, at.Child("scheme"), corev1.URISchemeHTTP, corev1.URISchemeHTTPS),
		validateHeaders(get.HTTPHeaders, at.Child("httpHeaders")),
	)
}

// validateHeaders checks the names of headers. Kubernetes reports them for the whole list.
func validateHeaders(headers []corev1.HTTPHeader, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, h := range headers {
		errs = append(errs, validate.FromMessages(h.Name, at, validation.IsHTTPHeaderName(h.Name))...)
	}
	return errs
}
