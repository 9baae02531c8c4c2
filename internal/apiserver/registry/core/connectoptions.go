package core

import (
	"net/url"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
)

// addToScheme registers the types of the group, and the conversions from query parameters to the options of pods/exec,
// pods/attach, pods/portforward and the proxies.
func addToScheme(scheme *runtime.Scheme) error {
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	if err := scheme.AddConversionFunc((*url.Values)(nil), (*corev1.PodExecOptions)(nil), func(from, to any, scope conversion.Scope) error {
		q, o := &query{values: *from.(*url.Values), scope: scope}, to.(*corev1.PodExecOptions)
		o.Command = q.values["command"]
		q.process(&o.Container, &o.Stdin, &o.Stdout, &o.Stderr, &o.TTY)
		return q.err
	}); err != nil {
		return err
	}
	if err := scheme.AddConversionFunc((*url.Values)(nil), (*corev1.PodAttachOptions)(nil), func(from, to any, scope conversion.Scope) error {
		q, o := &query{values: *from.(*url.Values), scope: scope}, to.(*corev1.PodAttachOptions)
		q.process(&o.Container, &o.Stdin, &o.Stdout, &o.Stderr, &o.TTY)
		return q.err
	}); err != nil {
		return err
	}
	if err := scheme.AddConversionFunc((*url.Values)(nil), (*corev1.PodProxyOptions)(nil), func(from, to any, _ conversion.Scope) error {
		to.(*corev1.PodProxyOptions).Path = from.(*url.Values).Get("path")
		return nil
	}); err != nil {
		return err
	}
	if err := scheme.AddConversionFunc((*url.Values)(nil), (*corev1.ServiceProxyOptions)(nil), func(from, to any, _ conversion.Scope) error {
		to.(*corev1.ServiceProxyOptions).Path = from.(*url.Values).Get("path")
		return nil
	}); err != nil {
		return err
	}
	if err := scheme.AddConversionFunc((*url.Values)(nil), (*corev1.NodeProxyOptions)(nil), func(from, to any, _ conversion.Scope) error {
		to.(*corev1.NodeProxyOptions).Path = from.(*url.Values).Get("path")
		return nil
	}); err != nil {
		return err
	}
	return scheme.AddConversionFunc((*url.Values)(nil), (*corev1.PodPortForwardOptions)(nil), func(from, to any, scope conversion.Scope) error {
		ports := (*from.(*url.Values))["ports"]
		if len(ports) == 0 {
			return nil
		}
		return metav1.Convert_Slice_string_To_Slice_int32(&ports, &to.(*corev1.PodPortForwardOptions).Ports, scope)
	})
}

// query reads options from query parameters, and keeps the first error.
type query struct {
	values url.Values
	scope  conversion.Scope
	err    error
}

// process reads the container, and the streams of its process.
func (q *query) process(container *string, stdin, stdout, stderr, tty *bool) {
	*container = q.values.Get("container")
	for name, to := range map[string]*bool{"stdin": stdin, "stdout": stdout, "stderr": stderr, "tty": tty} {
		set := q.values[name]
		if err := runtime.Convert_Slice_string_To_bool(&set, to, q.scope); err != nil && q.err == nil {
			q.err = err
		}
	}
}
