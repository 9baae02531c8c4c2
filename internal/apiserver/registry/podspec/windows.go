package podspec

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// Windows limits the names of domains and users. Kubernetes limits the size of a credential spec.
const (
	mostOfCredentialKiB = 64
	mostOfDomain        = 256
	mostOfUser          = 104
)

// validateWindowsOptions checks the user and the credential of a container on Windows.
func validateWindowsOptions(o *corev1.WindowsSecurityContextOptions, at *field.Path) field.ErrorList {
	if o == nil {
		return nil
	}
	var errs field.ErrorList
	if name := o.GMSACredentialSpecName; name != nil {
		errs = append(errs, validate.FromMessages(*name, at.Child("gmsaCredentialSpecName"), validation.IsDNS1123Subdomain(*name))...)
	}
	if spec := o.GMSACredentialSpec; spec != nil {
		switch length := len(*spec); {
		case length == 0:
			errs = append(errs, field.Invalid(at.Child("gmsaCredentialSpec"), *spec, "gmsaCredentialSpec cannot be an empty string"))
		case length > mostOfCredentialKiB<<10:
			errs = append(errs, field.Invalid(at.Child("gmsaCredentialSpec"), *spec, fmt.Sprintf("gmsaCredentialSpec size must be under %d KiB", mostOfCredentialKiB)))
		}
	}
	if name := o.RunAsUserName; name != nil {
		for _, message := range windowsUser(*name) {
			errs = append(errs, field.Invalid(at.Child("runAsUserName"), *name, message))
		}
	}
	return errs
}

// windowsUser returns what is wrong with the name of a user of Windows: USER or DOMAIN\USER.
func windowsUser(name string) []string {
	switch {
	case name == "":
		return []string{"runAsUserName cannot be an empty string"}
	case regexp.MustCompile(`[[:cntrl:]]`).MatchString(name):
		return []string{"runAsUserName cannot contain control characters"}
	case strings.Count(name, `\`) > 1:
		return []string{"runAsUserName cannot contain more than one backslash"}
	}
	var messages []string
	user := name
	if domain, of, ok := strings.Cut(name, `\`); ok {
		user = of
		if len(domain) >= mostOfDomain {
			messages = append(messages, fmt.Sprintf("runAsUserName's Domain length must be under %d characters", mostOfDomain))
		}
		netBIOS := regexp.MustCompile(`^[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}$`)
		dns := regexp.MustCompile(`^(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)(?:\.(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?))*$`)
		if !netBIOS.MatchString(domain) && !dns.MatchString(domain) {
			messages = append(messages, "runAsUserName's Domain doesn't match the NetBios nor the DNS format")
		}
	}
	switch {
	case user == "":
		messages = append(messages, "runAsUserName's User cannot be empty")
	case len(user) > mostOfUser:
		messages = append(messages, fmt.Sprintf("runAsUserName's User length must not be longer than %d characters", mostOfUser))
	}
	if user != "" && strings.Trim(user, ". ") == "" {
		messages = append(messages, "runAsUserName's User cannot contain only periods or spaces")
	}
	if strings.ContainsAny(user, `"/\:;|=,+*?<>@[]`) {
		messages = append(messages, `runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]`)
	}
	return messages
}

// validateHostProcess checks that all containers of a pod run as processes of a Windows host, or none. They need the
// host's network.
func validateHostProcess(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var ofPod *bool
	if s := spec.SecurityContext; s != nil && s.WindowsOptions != nil {
		ofPod = s.WindowsOptions.HostProcess
	}
	containers := len(spec.InitContainers) + len(spec.Containers) + len(spec.EphemeralContainers)
	var errs field.ErrorList
	chosen, hosted := 0, 0
	eachSecurityContext(spec, path, func(s *corev1.SecurityContext, at *field.Path) {
		if s.WindowsOptions == nil || s.WindowsOptions.HostProcess == nil {
			return
		}
		own := *s.WindowsOptions.HostProcess
		chosen++
		if own {
			hosted++
		}
		if ofPod != nil && *ofPod != own {
			errs = append(errs, field.Invalid(at.Child("windowsOptions", "hostProcess"), own, fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *ofPod)))
		}
	})
	if ptr.Deref(ofPod, false) {
		hosted += containers - chosen
	}
	if hosted == 0 {
		return errs
	}
	if hosted < containers {
		errs = append(errs, field.Invalid(path, "", "If pod contains any hostProcess containers then all containers must be HostProcess containers"))
	}
	if !spec.HostNetwork {
		errs = append(errs, field.Invalid(path.Child("hostNetwork"), spec.HostNetwork, "hostNetwork must be true if pod contains any hostProcess containers"))
	}
	return errs
}
