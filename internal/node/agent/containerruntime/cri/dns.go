package cri

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// resolvConf is the path of the node's DNS configuration.
const resolvConf = "/etc/resolv.conf"

// The limits of a pod's DNS configuration. Entries beyond them are left out.
const (
	mostNameservers = 3
	mostSearches    = 32
)

// addsToHostDNS reports whether the DNS configuration of a pod is the node's with additions. There is no cluster DNS:
// ClusterFirst means the node's configuration, as it does for a kubelet without one.
func addsToHostDNS(of *corev1.Pod) bool {
	return of.Spec.DNSPolicy != corev1.DNSNone && of.Spec.DNSConfig != nil
}

// dnsConfig returns the DNS configuration of a pod. host is the text of the node's configuration, if the pod adds to it.
// Nil is the node's configuration, in the representation of the CRI.
func dnsConfig(of *corev1.Pod, host []byte) *runtimeapi.DNSConfig {
	asked := of.Spec.DNSConfig
	if of.Spec.DNSPolicy != corev1.DNSNone && asked == nil {
		return nil
	}
	c := parseResolvConf(host)
	if asked == nil {
		return c
	}
	c.Servers = firstDistinct(append(c.Servers, asked.Nameservers...), mostNameservers)
	c.Searches = firstDistinct(append(c.Searches, asked.Searches...), mostSearches)
	for _, o := range asked.Options {
		text := o.Name
		if o.Value != nil && *o.Value != "" {
			text += ":" + *o.Value
		}
		c.Options = setOption(c.Options, text)
	}
	return c
}

// parseResolvConf returns the DNS configuration in a file like resolv.conf. The last line of search domains counts.
func parseResolvConf(text []byte) *runtimeapi.DNSConfig {
	c := &runtimeapi.DNSConfig{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			c.Servers = append(c.Servers, fields[1])
		case "search":
			c.Searches = nil
			for _, domain := range fields[1:] {
				if domain = strings.TrimSuffix(domain, "."); domain != "" {
					c.Searches = append(c.Searches, domain)
				}
			}
		case "options":
			for _, o := range fields[1:] {
				c.Options = setOption(c.Options, o)
			}
		}
	}
	return c
}

// setOption sets an option NAME or NAME:VALUE. It replaces an earlier one of that name.
func setOption(all []string, text string) []string {
	name, _, _ := strings.Cut(text, ":")
	i := slices.IndexFunc(all, func(other string) bool {
		before, _, _ := strings.Cut(other, ":")
		return before == name
	})
	if i < 0 {
		return append(all, text)
	}
	all[i] = text
	return all
}

// firstDistinct returns the first entries, each once.
func firstDistinct(all []string, most int) []string {
	var distinct []string
	for _, text := range all {
		if len(distinct) < most && !slices.Contains(distinct, text) {
			distinct = append(distinct, text)
		}
	}
	return distinct
}
