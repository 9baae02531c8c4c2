package podspec

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// validateContainers checks the containers and the volumes that they mount.
func validateContainers(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	volumes, errs := validateVolumes(spec.Volumes, path.Child("volumes"))
	c := newContainerChecks(spec, volumes)
	if len(spec.Containers) == 0 {
		errs = append(errs, field.Required(path.Child("containers"), ""))
	}
	errs = append(errs, validate.Each(spec.Containers, path.Child("containers"), c.check)...)
	errs = append(errs, validate.Each(spec.InitContainers, path.Child("initContainers"), c.checkInit)...)
	errs = append(errs, validateHostPorts(spec, path)...)
	return append(errs, c.checkEphemeral(path.Child("ephemeralContainers"))...)
}

// containerChecks checks the containers of one pod.
type containerChecks struct {
	spec    *corev1.PodSpec
	volumes map[string]*corev1.Volume // the valid ones
	named   map[string]*corev1.Volume // all of them; of several with one name, the last
	names   map[string]bool           // of the containers checked so far
	claims  claimNames
}

func newContainerChecks(spec *corev1.PodSpec, valid map[string]*corev1.Volume) containerChecks {
	named := make(map[string]*corev1.Volume, len(spec.Volumes))
	for i := range spec.Volumes {
		named[spec.Volumes[i].Name] = &spec.Volumes[i]
	}
	return containerChecks{spec: spec, volumes: valid, named: named, names: map[string]bool{}, claims: claimNamesOf(spec)}
}

// checkInit checks an init container. Unless it is a sidecar, it has no probes and no
// hooks.
func (c containerChecks) checkInit(container *corev1.Container, at *field.Path) field.ErrorList {
	errs := c.checkCommon(container, at)
	if container.Name != "" || c.names[""] { // upstream does not count missing names of init containers
		errs = append(errs, c.checkName(container.Name, at.Child("name"))...)
	}
	if container.RestartPolicy != nil || len(container.RestartPolicyRules) == 0 {
		errs = append(errs, validateRestart(container, at)...)
	} else {
		errs = append(errs, field.Required(at.Child("restartPolicy"), "must specify restartPolicy when restart rules are used"))
	}
	if ptr.Deref(container.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
		return append(errs, c.checkHealth(container, at)...)
	}
	const text = "may not be set for init containers without restartPolicy=Always"
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"lifecycle", container.Lifecycle != nil},
		{"livenessProbe", container.LivenessProbe != nil},
		{"readinessProbe", container.ReadinessProbe != nil},
		{"startupProbe", container.StartupProbe != nil},
	} {
		if f.set {
			errs = append(errs, field.Forbidden(at.Child(f.name), text))
		}
	}
	return append(errs, validate.Each(container.ResizePolicy, at.Child("resizePolicy"), func(p *corev1.ContainerResizePolicy, at *field.Path) field.ErrorList {
		if p.RestartPolicy != corev1.RestartContainer {
			return nil
		}
		return field.ErrorList{field.Invalid(at.Child("restartPolicy"), p.RestartPolicy, "must not be set to 'RestartContainer' for non-sidecar initContainers")}
	})...)
}

func (c containerChecks) check(container *corev1.Container, at *field.Path) field.ErrorList {
	return slices.Concat(c.checkName(container.Name, at.Child("name")), c.checkCommon(container, at), validateRestart(container, at), c.checkHealth(container, at))
}

// checkName checks that no container that was checked before has the name.
func (c containerChecks) checkName(name string, at *field.Path) field.ErrorList {
	if c.names[name] {
		return field.ErrorList{field.Duplicate(at, name)}
	}
	c.names[name] = true
	return nil
}

// checkCommon checks what containers of every kind may have.
func (c containerChecks) checkCommon(container *corev1.Container, at *field.Path) field.ErrorList {
	return slices.Concat(
		validate.RequiredLabel(container.Name, at.Child("name")),
		validate.Required(container.Image, at.Child("image")),
		validate.OneOf(container.ImagePullPolicy, at.Child("imagePullPolicy"),
			corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever),
		validate.Required(container.TerminationMessagePath, at.Child("terminationMessagePath")),
		validate.OneOf(container.TerminationMessagePolicy, at.Child("terminationMessagePolicy"),
			corev1.TerminationMessageFallbackToLogsOnError, corev1.TerminationMessageReadFile),
		validateResizePolicy(container.ResizePolicy, c.spec.RestartPolicy, at.Child("resizePolicy")),
		validate.Each(container.Env, at.Child("env"), c.checkEnv),
		validateEnvFrom(container.EnvFrom, at.Child("envFrom")),
		validatePorts(container.Ports, at.Child("ports")),
		c.checkMounts(container, at.Child("volumeMounts")),
		c.checkDevices(container, at.Child("volumeDevices")),
		validateResources(&container.Resources, ValidateContainerResource, c.claims, at.Child("resources")),
		validateContainerSecurity(container.SecurityContext, c.spec, at.Child("securityContext")),
	)
}

// validateImageName checks the image of a container in a pod. Templates may have spaces around the image, because a
// client may replace it later.
func validateImageName(container *corev1.Container, at *field.Path) field.ErrorList {
	if strings.TrimSpace(container.Image) != container.Image {
		return field.ErrorList{field.Invalid(at.Child("image"), container.Image, "must not have leading or trailing whitespace")}
	}
	return nil
}

// The maximum numbers of restart policy rules of a container, and of the exit codes in one.
const (
	maxRestartRules = 20
	maxExitCodes    = 255
)

func validateRestart(container *corev1.Container, at *field.Path) field.ErrorList {
	errs := validate.OneOfPtr(container.RestartPolicy, at.Child("restartPolicy"),
		corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)
	rules := at.Child("restartPolicyRules")
	errs = append(errs, validate.MaxItems(container.RestartPolicyRules, rules, maxRestartRules)...)
	if container.RestartPolicy == nil && len(container.RestartPolicyRules) > 0 {
		errs = append(errs, field.Required(at.Child("restartPolicy"), "must specify restartPolicy when restart rules are used"))
	}
	return append(errs, validate.Each(container.RestartPolicyRules, rules, func(r *corev1.ContainerRestartRule, at *field.Path) field.ErrorList {
		errs := validate.OneOfPtr(&r.Action, at.Child("action"), corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers)
		if r.ExitCodes == nil {
			return append(errs, field.Required(at.Child("exitCodes"), "must be specified"))
		}
		errs = append(errs, validate.MaxItems(r.ExitCodes.Values, at.Child("exitCodes", "values"), maxExitCodes)...)
		return append(errs, validate.OneOfPtr(&r.ExitCodes.Operator, at.Child("exitCodes", "operator"),
			corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)...)
	})...)
}

func validatePorts(ports []corev1.ContainerPort, path *field.Path) field.ErrorList {
	errs := validate.NoDuplicates(ports, path, func(p corev1.ContainerPort) string {
		if len(validation.IsValidPortName(p.Name)) > 0 {
			return "" // of an invalid name, upstream reports nothing else
		}
		return p.Name
	}, "name")
	return append(errs, validate.Each(ports, path, validatePort)...)
}

func validatePort(port *corev1.ContainerPort, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if port.Name != "" {
		errs = append(errs, validate.FromMessages(port.Name, at.Child("name"), validation.IsValidPortName(port.Name))...)
	}
	if port.ContainerPort == 0 {
		errs = append(errs, field.Required(at.Child("containerPort"), ""))
	} else {
		errs = append(errs, validate.Port(port.ContainerPort, at.Child("containerPort"))...)
	}
	if port.HostPort != 0 {
		errs = append(errs, validate.Port(port.HostPort, at.Child("hostPort"))...)
	}
	return append(errs, validate.Protocol(port.Protocol, at.Child("protocol"))...)
}

// validateHostPorts checks the host ports of containers. In the node's network they must equal the containers' own
// ports. Init containers run one after another.
func validateHostPorts(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	containers := path.Child("containers")
	errs := validateDistinctPorts(spec.Containers, containers)
	for i := range spec.InitContainers { // Kubernetes reports each with the index 0
		errs = append(errs, validateDistinctPorts(spec.InitContainers[i:i+1], path.Child("initContainers"))...)
	}
	if !spec.HostNetwork {
		return errs
	}
	for i, container := range spec.Containers {
		for j, port := range container.Ports {
			if port.HostPort != 0 && port.HostPort != port.ContainerPort {
				at := containers.Index(i).Child("ports").Index(j).Child("hostPort")
				errs = append(errs, field.Invalid(at, port.HostPort, "must match `containerPort` when `hostNetwork` is true"))
			}
		}
	}
	return errs
}

// validateDistinctPorts checks that each port of a node is assigned to only one container.
func validateDistinctPorts(containers []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := map[string]bool{}
	for i, container := range containers {
		for j, port := range container.Ports {
			if port.HostPort == 0 {
				continue
			}
			address := fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort)
			if taken[address] {
				errs = append(errs, field.Duplicate(path.Index(i).Child("ports").Index(j).Child("hostPort"), address))
			}
			taken[address] = true
		}
	}
	return errs
}

func (c containerChecks) checkMounts(container *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	paths := map[string]bool{}
	devices := map[string]string{} // the path of each device; of two with one name, the last
	for _, device := range container.VolumeDevices {
		devices[device.Name] = device.DevicePath
	}
	taken := pathsTaken(devices)
	for i, mount := range container.VolumeMounts {
		at := path.Index(i)
		errs = append(errs, validate.Required(mount.Name, at.Child("name"))...)
		if c.volumes[mount.Name] == nil {
			errs = append(errs, field.NotFound(at.Child("name"), mount.Name))
		}
		errs = append(errs, validate.Required(mount.MountPath, at.Child("mountPath"))...)
		if paths[mount.MountPath] {
			errs = append(errs, field.Invalid(at.Child("mountPath"), mount.MountPath, "must be unique"))
		}
		if taken[mount.MountPath] {
			errs = append(errs, field.Invalid(at.Child("mountPath"), mount.MountPath, "must not already exist as a path in volumeDevices"))
		}
		paths[mount.MountPath] = true
		if _, isDevice := devices[mount.Name]; isDevice {
			errs = append(errs, field.Invalid(at.Child("name"), mount.Name, "must not already exist in volumeDevices"))
		}
		errs = append(errs, validateMount(&mount, at, path)...)
		errs = append(errs, validatePropagation(&mount, container.SecurityContext, path)...)
	}
	return errs
}

// pathsTaken returns the paths of volumes, which have a name each.
func pathsTaken(byName map[string]string) map[string]bool {
	taken := make(map[string]bool, len(byName))
	for _, path := range byName {
		taken[path] = true
	}
	return taken
}

// validateMount checks the mounted path of a volume. Kubernetes reports the paths for the list.
func validateMount(mount *corev1.VolumeMount, at, mounts *field.Path) field.ErrorList {
	errs := slices.Concat(
		relativePath(mount.SubPath, mounts.Child("subPath")),
		relativePath(mount.SubPathExpr, mounts.Child("subPathExpr")),
	)
	if mount.SubPath != "" && mount.SubPathExpr != "" {
		errs = append(errs, field.Invalid(at.Child("subPathExpr"), mount.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
	}
	return errs
}

// validatePropagation checks the propagation of mounts. Kubernetes reports errors for the list of mounts, not for the
// single mount.
func validatePropagation(mount *corev1.VolumeMount, security *corev1.SecurityContext, mounts *field.Path) field.ErrorList {
	propagation, recursive := mounts.Child("mountPropagation"), mounts.Child("recursiveReadOnly")
	mode := ptr.Deref(mount.MountPropagation, corev1.MountPropagationNone)
	errs := validate.OneOfPtr(mount.MountPropagation, propagation,
		corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)
	if mode == corev1.MountPropagationBidirectional && (security == nil || !ptr.Deref(security.Privileged, false)) {
		errs = append(errs, field.Forbidden(propagation, "Bidirectional mount propagation is available only to privileged containers"))
	}
	switch ptr.Deref(mount.RecursiveReadOnly, corev1.RecursiveReadOnlyDisabled) {
	case corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible:
		if !mount.ReadOnly {
			errs = append(errs, field.Forbidden(recursive, "may only be specified when readOnly is true"))
		}
		if mode != corev1.MountPropagationNone {
			errs = append(errs, field.Forbidden(recursive, "may only be specified when mountPropagation is None or not specified"))
		}
	default:
		errs = append(errs, validate.OneOfPtr(mount.RecursiveReadOnly, recursive,
			corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled)...)
	}
	return errs
}

// relativePath checks a path that must not lead out of its root.
func relativePath(p string, at *field.Path) field.ErrorList {
	errs := ValidateNoBacksteps(p, at)
	if path.IsAbs(p) {
		errs = append(errs, field.Invalid(at, p, "must be a relative path"))
	}
	return errs
}

// ValidateNoBacksteps refuses paths with an element "..".
func ValidateNoBacksteps(p string, at *field.Path) field.ErrorList {
	if slices.Contains(strings.Split(p, "/"), "..") {
		return field.ErrorList{field.Invalid(at, p, "must not contain '..'")}
	}
	return nil
}
