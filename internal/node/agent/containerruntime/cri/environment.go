package cri

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/fieldpath"
	resourcehelper "k8s.io/kubectl/pkg/util/resource"
)

// variable is an environment variable.
type variable struct{ name, value string }

// environment returns the environment of a container: first the variables of services, then the
// variables of envFrom, then the variables of env, which may refer to earlier ones as $(NAME). The
// last variable of a name counts.
func environment(of *corev1.Pod, c *corev1.Container, services []variable, m *references) ([]variable, error) {
	var e entries
	for _, v := range services {
		e.set(v.name, v.value)
	}
	for _, from := range c.EnvFrom {
		if err := e.addAll(from, m); err != nil {
			return nil, err
		}
	}
	for i := range c.Env {
		v := &c.Env[i]
		value, found := expand(v.Value, e.values), true
		if v.ValueFrom != nil {
			var err error
			if value, found, err = valueFrom(of, c, v.ValueFrom, m); err != nil {
				return nil, fmt.Errorf("variable %s: %w", v.Name, err)
			}
		}
		if found {
			e.set(v.Name, value)
		}
	}
	return e.list(), nil
}

// entries are variables in the order of their first appearance.
type entries struct {
	order  []string
	values map[string]string
}

func (e *entries) set(name, value string) {
	if e.values == nil {
		e.values = map[string]string{}
	}
	if _, known := e.values[name]; !known {
		e.order = append(e.order, name)
	}
	e.values[name] = value
}

func (e *entries) list() []variable {
	all := make([]variable, 0, len(e.order))
	for _, name := range e.order {
		all = append(all, variable{name, e.values[name]})
	}
	return all
}

// addAll adds the variables of an envFrom source.
func (e *entries) addAll(from corev1.EnvFromSource, m *references) error {
	values := map[string]string{}
	switch {
	case from.ConfigMapRef != nil:
		found, err := m.configMap(from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		if err != nil {
			return err
		}
		if found != nil {
			maps.Copy(values, found.Data)
		}
	case from.SecretRef != nil:
		found, err := m.secret(from.SecretRef.Name, from.SecretRef.Optional)
		if err != nil {
			return err
		}
		if found != nil {
			for key, value := range found.Data {
				values[key] = string(value)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		e.set(from.Prefix+key, values[key])
	}
	return nil
}

// valueFrom returns the value that a variable refers to, and reports whether it exists.
func valueFrom(of *corev1.Pod, c *corev1.Container, from *corev1.EnvVarSource, m *references) (value string, found bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = fieldOf(of, from.FieldRef.FieldPath)
	case from.ResourceFieldRef != nil:
		value, err = resourceOf(of, c, from.ResourceFieldRef)
	case from.ConfigMapKeyRef != nil:
		return configMapKey(of.Namespace, from.ConfigMapKeyRef, m)
	case from.SecretKeyRef != nil:
		return secretKey(of.Namespace, from.SecretKeyRef, m)
	default:
		err = fmt.Errorf("the source of its value is not supported by this node")
	}
	return value, err == nil, err
}

func configMapKey(namespace string, ref *corev1.ConfigMapKeySelector, m *references) (value string, found bool, err error) {
	object, err := m.configMap(ref.Name, ref.Optional)
	if object == nil {
		return "", false, err
	}
	if value, found = object.Data[ref.Key]; !found && !isOptional(ref.Optional) {
		err = fmt.Errorf("couldn't find key %s in ConfigMap %s/%s", ref.Key, namespace, ref.Name)
	}
	return value, found, err
}

func secretKey(namespace string, ref *corev1.SecretKeySelector, m *references) (value string, found bool, err error) {
	object, err := m.secret(ref.Name, ref.Optional)
	if object == nil {
		return "", false, err
	}
	data, found := object.Data[ref.Key]
	if !found && !isOptional(ref.Optional) {
		err = fmt.Errorf("couldn't find key %s in Secret %s/%s", ref.Key, namespace, ref.Name)
	}
	return string(data), found, err
}

func isOptional(o *bool) bool { return o != nil && *o }

// fieldOf returns a field of a pod.
func fieldOf(of *corev1.Pod, path string) (string, error) {
	switch path {
	case "spec.nodeName":
		return of.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return of.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return of.Status.HostIP, nil
	case "status.hostIPs":
		ips := make([]string, 0, len(of.Status.HostIPs))
		for _, ip := range of.Status.HostIPs {
			ips = append(ips, ip.IP)
		}
		return strings.Join(ips, ","), nil
	case "status.podIP":
		return of.Status.PodIP, nil
	case "status.podIPs":
		ips := make([]string, 0, len(of.Status.PodIPs))
		for _, ip := range of.Status.PodIPs {
			ips = append(ips, ip.IP)
		}
		return strings.Join(ips, ","), nil
	}
	return fieldpath.ExtractFieldPathAsString(of, path)
}

// resourceOf returns a request or limit of container c, or of the container that the reference names.
func resourceOf(of *corev1.Pod, c *corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" || c == nil {
		if c = find(of, ref.ContainerName); c == nil {
			return "", fmt.Errorf("container %s not found", ref.ContainerName)
		}
	}
	return resourcehelper.ExtractContainerResourceValue(ref, c)
}

// withLimits returns a copy of a pod in which each container has a limit of each resource that the downward API offers.
// Missing limits come from the pod, or else from the node's allocatable resources.
func withLimits(of *corev1.Pod, allocatable corev1.ResourceList) *corev1.Pod {
	of = of.DeepCopy()
	for _, c := range containersOf(of) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			limit, known := allocatable[name]
			if own := c.Resources.Limits[name]; !known || !own.IsZero() {
				continue
			}
			if of.Spec.Resources != nil {
				if shared := of.Spec.Resources.Limits[name]; !shared.IsZero() {
					limit = shared
				}
			}
			if c.Resources.Limits == nil {
				c.Resources.Limits = corev1.ResourceList{}
			}
			c.Resources.Limits[name] = limit.DeepCopy()
		}
	}
	return of
}

// literals returns the variables of a container as its spec has them. A variable from another source is empty: so it is
// for a kubelet when it expands the command of a probe.
func literals(c *corev1.Container) map[string]string {
	values := map[string]string{}
	for _, v := range c.Env {
		values[v.Name] = v.Value
	}
	return values
}

// expandAll expands all texts.
func expandAll(texts []string, values map[string]string) []string {
	var all []string
	for _, text := range texts {
		all = append(all, expand(text, values))
	}
	return all
}

// expand replaces $(NAME) by the value of the variable. References to unknown variables are kept,
// and $$ is an escaped dollar sign.
func expand(text string, values map[string]string) string {
	return expandBy(text, func(name string) (string, bool) {
		value, known := values[name]
		return value, known
	})
}

// expandBy expands with a function that returns the value of a variable.
func expandBy(text string, valueOf func(name string) (string, bool)) string {
	var out strings.Builder
	for {
		at := strings.IndexByte(text, '$')
		if at < 0 || at+1 == len(text) {
			return out.String() + text
		}
		out.WriteString(text[:at])
		text = text[at:]
		end := strings.IndexByte(text, ')')
		switch {
		case text[1] == '$':
			out.WriteByte('$')
			text = text[2:]
		case text[1] == '(' && end > 0:
			if value, known := valueOf(text[2:end]); known {
				out.WriteString(value)
			} else {
				out.WriteString(text[:end+1])
			}
			text = text[end+1:]
		default:
			out.WriteByte('$')
			text = text[1:]
		}
	}
}
