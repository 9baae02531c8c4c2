package cri

import (
	"context"
	"net"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubernetesService is the name of the service of the API server, in namespace default.
const kubernetesService = "kubernetes"

// servicesOf returns the services for the environment of a pod's containers: the service of the API
// server, and the services of the pod's namespace if service links are enabled. The latter win.
func (r *Runtime) servicesOf(ctx context.Context, of *corev1.Pod) ([]corev1.Service, error) {
	if r.objects == nil {
		return nil, nil
	}
	var all []corev1.Service
	if api, ok := apiService(r.objects.Server(), of, r.hostIPs); ok {
		all = append(all, api)
	}
	if links := of.Spec.EnableServiceLinks; links == nil || *links {
		found, err := r.objects.Services(ctx, of.Namespace)
		if err != nil {
			return nil, err
		}
		for i := range found {
			if found[i].Name != kubernetesService || of.Namespace != metav1.NamespaceDefault {
				all = append(all, found[i])
			}
		}
	}
	return all, nil
}

// apiService returns the service of the API server with the address that the node itself uses,
// because cluster IPs are not routed here. If that is a loopback address, a pod with a network of
// its own gets the node's address, at which the server may listen too.
func apiService(server string, of *corev1.Pod, hostIPs []string) (corev1.Service, bool) {
	at, err := url.Parse(server)
	if err != nil {
		return corev1.Service{}, false
	}
	port, err := strconv.ParseInt(at.Port(), 10, 32)
	if err != nil {
		return corev1.Service{}, false
	}
	host := at.Hostname()
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() && !of.Spec.HostNetwork && len(hostIPs) > 0 {
		host = hostIPs[0]
	}
	return corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: kubernetesService, Namespace: metav1.NamespaceDefault},
		Spec:       corev1.ServiceSpec{ClusterIP: host, Ports: []corev1.ServicePort{{Name: "https", Port: int32(port), Protocol: corev1.ProtocolTCP}}},
	}, true
}

// serviceVariables returns the environment variables of services, as the kubelet names them.
func serviceVariables(services []corev1.Service) []variable {
	var all []variable
	for i := range services {
		s := &services[i]
		if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone || len(s.Spec.Ports) == 0 {
			continue
		}
		prefix, first := variableName(s.Name), strconv.Itoa(int(s.Spec.Ports[0].Port))
		all = append(all, variable{prefix + "_SERVICE_HOST", s.Spec.ClusterIP}, variable{prefix + "_SERVICE_PORT", first})
		for _, p := range s.Spec.Ports {
			if p.Name != "" {
				all = append(all, variable{prefix + "_SERVICE_PORT_" + variableName(p.Name), strconv.Itoa(int(p.Port))})
			}
		}
		for n, p := range s.Spec.Ports {
			protocol, port := string(p.Protocol), strconv.Itoa(int(p.Port))
			if protocol == "" {
				protocol = string(corev1.ProtocolTCP)
			}
			address := strings.ToLower(protocol) + "://" + net.JoinHostPort(s.Spec.ClusterIP, port)
			if n == 0 {
				all = append(all, variable{prefix + "_PORT", address})
			}
			link := prefix + "_PORT_" + port + "_" + strings.ToUpper(protocol)
			all = append(all, variable{link, address}, variable{link + "_PROTO", strings.ToLower(protocol)},
				variable{link + "_PORT", port}, variable{link + "_ADDR", s.Spec.ClusterIP})
		}
	}
	return all
}

func variableName(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
