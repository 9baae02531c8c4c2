package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// stored is an object that a strategy warns about.
type stored interface {
	comparable
	metav1.Object
}

// WarnOfPod returns the warnings about a new pod. Updates come from controllers, which read no warnings.
func WarnOfPod(pod, old *corev1.Pod) []string {
	if old != nil {
		return nil
	}
	return append(warnOfLabel(pod.Name, "the Pod's hostname"), specWarnings(&pod.ObjectMeta, &pod.Spec, nil)...)
}

// WarnOfName warns about the name of a new object from which the names of its pods are made.
func WarnOfName[P stored](obj, old P) []string {
	var none P
	if old != none {
		return nil
	}
	return warnOfLabel(obj.GetName(), "Pod names and hostnames")
}

func warnOfLabel(name, use string) []string {
	complaints := validation.IsDNS1123Label(name)
	if len(complaints) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("metadata.name: this is used in %s, which can result in surprising behavior; a DNS label is recommended: %v", use, complaints)}
}

// WarnOfTemplate returns the warnings about the template of a new or changed object.
func WarnOfTemplate[P stored](obj, old P, template *corev1.PodTemplateSpec, path *field.Path) []string {
	var none P
	if template == nil || old != none && obj.GetGeneration() == old.GetGeneration() {
		return nil
	}
	return specWarnings(&template.ObjectMeta, &template.Spec, path)
}

// warnings collects the warnings about a pod or a template, up to validate.MaxWarnings: one list of an object can give
// reason for millions.
type warnings []string

func (w *warnings) add(at *field.Path, format string, values ...any) {
	if !w.full() {
		w.put(at.String() + ": " + fmt.Sprintf(format, values...))
	}
}

// put adds texts that have their paths already.
func (w *warnings) put(texts ...string) {
	*w = append(*w, texts[:min(len(texts), validate.MaxWarnings-len(*w))]...)
}

func (w *warnings) full() bool { return len(*w) >= validate.MaxWarnings }

// specWarnings returns the warnings about a pod, or about the template at path.
func specWarnings(meta *metav1.ObjectMeta, spec *corev1.PodSpec, path *field.Path) []string {
	var w warnings
	at := path.Child("spec")
	w.ofNodes(spec, at)
	w.ofAnnotations(meta.Annotations, spec, path.Child("metadata", "annotations"))
	w.ofVolumes(spec.Volumes, at.Child("volumes"))
	w.ofNames(spec, at)
	w.ofFractions(spec.Overhead, at.Child("overhead"))
	eachContainer(spec, at, func(c *corev1.Container, at *field.Path) {
		w.ofProfiles(meta.Annotations, spec, c, path.Child("metadata", "annotations"))
		w.ofFractions(c.Resources.Limits, at.Child("resources", "limits"))
		w.ofFractions(c.Resources.Requests, at.Child("resources", "requests"))
		w.ofVariables(c.Env, at.Child("env"))
	})
	w.ofPorts(spec, at)
	if seconds := spec.TerminationGracePeriodSeconds; seconds != nil && *seconds < 0 {
		w.add(at.Child("terminationGracePeriodSeconds"), "must be >= 0; negative values are invalid and will be treated as 1")
	}
	w.ofPods(spec.Affinity, at.Child("affinity"))
	w.ofAddresses(spec, at)
	return w
}

// eachContainer visits the containers of all kinds.
func eachContainer(spec *corev1.PodSpec, path *field.Path, visit func(*corev1.Container, *field.Path)) {
	for i := range spec.InitContainers {
		visit(&spec.InitContainers[i], path.Child("initContainers").Index(i))
	}
	for i := range spec.Containers {
		visit(&spec.Containers[i], path.Child("containers").Index(i))
	}
	for i := range spec.EphemeralContainers {
		visit((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon), path.Child("ephemeralContainers").Index(i))
	}
}

// ofNodes warns about deprecated labels of nodes in selectors and constraints.
func (w *warnings) ofNodes(spec *corev1.PodSpec, at *field.Path) {
	for _, key := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		if text := validate.DeprecatedNodeLabel(key); text != "" {
			w.add(at.Child("nodeSelector").Key(key), "%s", text)
		}
	}
	if spec.Affinity != nil && spec.Affinity.NodeAffinity != nil {
		affinity, at := spec.Affinity.NodeAffinity, at.Child("affinity", "nodeAffinity")
		if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			terms := at.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
			for i, term := range required.NodeSelectorTerms {
				w.put(validate.WarnOfNodeTerm(term, terms.Index(i))...)
			}
		}
		for i, term := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
			at := at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("preference")
			w.put(validate.WarnOfNodeTerm(term.Preference, at)...)
			w.ofValues(term.Preference, at)
		}
	}
	for i, c := range spec.TopologySpreadConstraints {
		at := at.Child("topologySpreadConstraints").Index(i)
		if text := validate.DeprecatedNodeLabel(c.TopologyKey); text != "" {
			w.add(at.Child("topologyKey"), "%s is %s", c.TopologyKey, text)
		}
		w.ofSelector(c.LabelSelector, at)
	}
}

// ofValues warns about values that no label can have. Only a preferred term may have such a value.
func (w *warnings) ofValues(term corev1.NodeSelectorTerm, at *field.Path) {
	for i, expression := range term.MatchExpressions {
		for n, value := range expression.Values {
			for _, complaint := range validation.IsValidLabelValue(value) {
				w.add(at.Child("matchExpressions").Index(i).Child("values").Index(n), "%s is invalid, %s", value, complaint)
			}
		}
	}
}

// ofPods warns about pod affinity terms that select no pods.
func (w *warnings) ofPods(affinity *corev1.Affinity, at *field.Path) {
	terms := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, at *field.Path) {
		for i, term := range required {
			w.ofSelector(term.LabelSelector, at.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i))
		}
		for i, term := range preferred {
			w.ofSelector(term.PodAffinityTerm.LabelSelector, at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("podAffinityTerm"))
		}
	}
	if affinity != nil && affinity.PodAffinity != nil {
		a := affinity.PodAffinity
		terms(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAffinity"))
	}
	if affinity != nil && affinity.PodAntiAffinity != nil {
		a := affinity.PodAntiAffinity
		terms(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAntiAffinity"))
	}
}

func (w *warnings) ofSelector(selector *metav1.LabelSelector, at *field.Path) {
	if selector == nil {
		w.add(at.Child("labelSelector"), "a null labelSelector results in matching no pod")
	}
}

// ofNames warns about host aliases and secrets with duplicate or empty names.
func (w *warnings) ofNames(spec *corev1.PodSpec, at *field.Path) {
	addresses := map[string]bool{}
	for i, alias := range spec.HostAliases {
		if addresses[alias.IP] {
			w.add(at.Child("hostAliases").Index(i).Child("ip"), "duplicate ip %q", alias.IP)
		}
		addresses[alias.IP] = true
	}
	secrets := map[string]bool{}
	for i, secret := range spec.ImagePullSecrets {
		at := at.Child("imagePullSecrets").Index(i).Child("name")
		if secrets[secret.Name] {
			w.add(at, "duplicate name %q", secret.Name)
		}
		secrets[secret.Name] = true
		if secret.Name == "" {
			w.add(at, "invalid empty name %q", secret.Name)
		}
	}
}

// ofAddresses warns about addresses that other programs parse or write differently.
func (w *warnings) ofAddresses(spec *corev1.PodSpec, at *field.Path) {
	if spec.DNSConfig != nil {
		for i, server := range spec.DNSConfig.Nameservers {
			w.put(validation.GetWarningsForIP(at.Child("dnsConfig", "nameservers").Index(i), server)...)
		}
	}
	for i, alias := range spec.HostAliases {
		w.put(validation.GetWarningsForIP(at.Child("hostAliases").Index(i).Child("ip"), alias.IP)...)
	}
}

// ofAnnotations warns about annotations that fields have replaced.
func (w *warnings) ofAnnotations(annotations map[string]string, spec *corev1.PodSpec, at *field.Path) {
	warn := func(key, since, name string) {
		if _, given := annotations[key]; given {
			w.add(at.Key(key), "non-functional in %s+; use the %q field instead", since, name)
		}
	}
	warn("scheduler.alpha.kubernetes.io/critical-pod", "v1.16", "priorityClassName")
	warn("security.alpha.kubernetes.io/sysctls", "v1.11", "sysctls")
	warn("security.alpha.kubernetes.io/unsafe-sysctls", "v1.11", "sysctls")
	if spec.SecurityContext == nil || spec.SecurityContext.SeccompProfile == nil {
		warn(corev1.SeccompPodAnnotationKey, "v1.27", "seccompProfile")
	}
}

// ofProfiles warns about annotations that the profiles of a container have replaced.
func (w *warnings) ofProfiles(annotations map[string]string, spec *corev1.PodSpec, c *corev1.Container, at *field.Path) {
	if len(annotations) == 0 {
		return
	}
	key := corev1.SeccompContainerAnnotationKeyPrefix + c.Name
	if _, given := annotations[key]; given && (c.SecurityContext == nil || c.SecurityContext.SeccompProfile == nil) {
		w.add(at.Key(key), `non-functional in v1.27+; use the "seccompProfile" field instead`)
	}
	key = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + c.Name
	text, given := annotations[key]
	if !given || (c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil) {
		return
	}
	if spec.SecurityContext == nil || !isProfile(text, spec.SecurityContext.AppArmorProfile) {
		w.add(at.Key(key), `deprecated since v1.30; use the "appArmorProfile" field instead`)
	}
}

// isProfile reports whether an annotation has the same meaning as a profile.
func isProfile(annotation string, profile *corev1.AppArmorProfile) bool {
	if profile == nil {
		return false
	}
	switch name, local := strings.CutPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix); {
	case annotation == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return profile.Type == corev1.AppArmorProfileTypeUnconfined
	case annotation == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return profile.Type == corev1.AppArmorProfileTypeRuntimeDefault
	case local && name != "":
		return profile.Type == corev1.AppArmorProfileTypeLocalhost && profile.LocalhostProfile != nil && *profile.LocalhostProfile == name
	}
	return false
}
