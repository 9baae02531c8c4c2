package quota

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
)

func TestServiceUsage(t *testing.T) {
	ports := []corev1.ServicePort{{Port: 80, NodePort: 30000}, {Port: 81}, {Port: 82}}
	for name, test := range map[string]struct {
		spec           corev1.ServiceSpec
		nodePorts, lbs string
	}{
		"cluster IP":                       {corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: ports}, "0", "0"},
		"external name":                    {corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}, "0", "0"},
		"node ports":                       {corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: ports}, "3", "0"},
		"load balancer":                    {corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: ports}, "3", "1"},
		"load balancer without node ports": {corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: ports, AllocateLoadBalancerNodePorts: new(false)}, "1", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			want := amounts(t, map[string]string{
				"count/services": "1", "services": "1", "services.nodeports": test.nodePorts, "services.loadbalancers": test.lbs,
			})
			if got := serviceUsage(&corev1.Service{Spec: test.spec}); !quotav1.Equals(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func claimOf(t *testing.T, size string) *corev1.PersistentVolumeClaim {
	t.Helper()
	return &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
		Resources: corev1.VolumeResourceRequirements{Requests: amounts(t, map[string]string{"storage": size})},
	}}
}

func TestClaimUsage(t *testing.T) {
	gold, legacy, grown, fraction := claimOf(t, "1Gi"), claimOf(t, "1Gi"), claimOf(t, "1Gi"), claimOf(t, "1500m")
	gold.Spec.StorageClassName = new("gold")
	legacy.Spec.StorageClassName = new("gold")
	legacy.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "silver"}
	grown.Status.AllocatedResources = amounts(t, map[string]string{"storage": "3Gi"})
	for name, test := range map[string]struct {
		claim *corev1.PersistentVolumeClaim
		class string
		size  string
	}{
		"no class":                {claimOf(t, "1Gi"), "", "1Gi"},
		"a class":                 {gold, "gold", "1Gi"},
		"a class by annotation":   {legacy, "silver", "1Gi"},
		"more has been allocated": {grown, "", "3Gi"},
		"a fraction of a byte":    {fraction, "", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			want := map[string]string{"count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": test.size}
			if test.class != "" {
				want[test.class+".storageclass.storage.k8s.io/persistentvolumeclaims"] = "1"
				want[test.class+".storageclass.storage.k8s.io/requests.storage"] = test.size
			}
			if got := claimUsage(test.claim); !quotav1.Equals(got, amounts(t, want)) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
	if size := fraction.Spec.Resources.Requests["storage"]; size.String() != "1500m" {
		t.Errorf("the claim now requests %s", size.String())
	}
}

func TestHandlesClaim(t *testing.T) {
	small, grown, classed := claimOf(t, "1"), claimOf(t, "1"), claimOf(t, "1")
	grown.Status.AllocatedResources = amounts(t, map[string]string{"storage": "2"})
	classed.Status.CurrentVolumeAttributesClassName = new("fast")
	for _, test := range []struct {
		operation   admission.Operation
		subresource string
		claim       *corev1.PersistentVolumeClaim
		want        bool
	}{
		{admission.Create, "", small, true},
		{admission.Update, "", small, true},
		{admission.Update, "status", small, false},
		{admission.Update, "status", grown, true},
		{admission.Update, "status", classed, true},
		{admission.Create, "scale", small, false},
	} {
		if got := handlesClaim(test.operation, test.subresource, test.claim, small); got != test.want {
			t.Errorf("%s %q of %v: %t", test.operation, test.subresource, test.claim.Status, got)
		}
	}
}

func TestScopesSelectObjects(t *testing.T) {
	exists := corev1.ScopeSelectorOpExists
	affine := func(term corev1.PodAffinityTerm) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{PodAffinityTerm: term}},
		}}}}
	}
	plain := &corev1.Pod{}
	burstable := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{with(t, "a", map[string]string{"cpu": "1"}, nil)}}}
	terminating := &corev1.Pod{Spec: corev1.PodSpec{ActiveDeadlineSeconds: new(int64(0))}}
	high := &corev1.Pod{Spec: corev1.PodSpec{PriorityClassName: "high"}}
	for name, test := range map[string]struct {
		scope    corev1.ResourceQuotaScope
		operator corev1.ScopeSelectorOperator
		values   []string
		in, out  []*corev1.Pod
	}{
		"Terminating":      {corev1.ResourceQuotaScopeTerminating, exists, nil, []*corev1.Pod{terminating}, []*corev1.Pod{plain}},
		"NotTerminating":   {corev1.ResourceQuotaScopeNotTerminating, exists, nil, []*corev1.Pod{plain}, []*corev1.Pod{terminating}},
		"BestEffort":       {corev1.ResourceQuotaScopeBestEffort, exists, nil, []*corev1.Pod{plain}, []*corev1.Pod{burstable}},
		"NotBestEffort":    {corev1.ResourceQuotaScopeNotBestEffort, exists, nil, []*corev1.Pod{burstable}, []*corev1.Pod{plain}},
		"a priority class": {corev1.ResourceQuotaScopePriorityClass, exists, nil, []*corev1.Pod{high}, []*corev1.Pod{plain}},
		"no priority class": {
			corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpDoesNotExist, nil, []*corev1.Pod{plain}, []*corev1.Pod{high},
		},
		"one of the priority classes": {
			corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpIn, []string{"low", "high"}, []*corev1.Pod{high}, []*corev1.Pod{plain},
		},
		"none of the priority classes": {
			corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpNotIn, []string{"high"}, []*corev1.Pod{plain}, []*corev1.Pod{high},
		},
		"CrossNamespacePodAffinity": {
			corev1.ResourceQuotaScopeCrossNamespacePodAffinity, exists, nil,
			[]*corev1.Pod{affine(corev1.PodAffinityTerm{Namespaces: []string{"x"}}), affine(corev1.PodAffinityTerm{NamespaceSelector: &metav1.LabelSelector{}})},
			[]*corev1.Pod{plain, affine(corev1.PodAffinityTerm{TopologyKey: "zone"})},
		},
		"of volume claims": {corev1.ResourceQuotaScopeVolumeAttributesClass, exists, nil, nil, []*corev1.Pod{plain, high}},
	} {
		t.Run(name, func(t *testing.T) {
			scope := corev1.ScopedResourceSelectorRequirement{ScopeName: test.scope, Operator: test.operator, Values: test.values}
			check := func(list []*corev1.Pod, want bool) {
				for i, pod := range list {
					if got, err := podInScope(scope, pod); err != nil || got != want {
						t.Errorf("pod %d of those for which it should be %t: %t, %v", i, want, got, err)
					}
				}
			}
			check(test.in, true)
			check(test.out, false)
		})
	}
	invalid := corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: "Like"}
	if _, err := podInScope(invalid, high); err == nil {
		t.Error("an operator that does not exist is accepted")
	}
}

// While its class is changed, a claim is in the scope of both.
func TestClaimScopes(t *testing.T) {
	claim := claimOf(t, "1")
	claim.Spec.VolumeAttributesClassName, claim.Status.CurrentVolumeAttributesClassName = new("new"), new("old")
	for value, want := range map[string]bool{"new": true, "old": true, "other": false} {
		scope := corev1.ScopedResourceSelectorRequirement{
			ScopeName: corev1.ResourceQuotaScopeVolumeAttributesClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{value},
		}
		if got, err := claimInScope(scope, claim); err != nil || got != want {
			t.Errorf("in %s: %t, %v", value, got, err)
		}
	}
	if got, err := claimInScope(corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopeBestEffort}, claim); err != nil || got {
		t.Errorf("in a scope of pods: %t, %v", got, err)
	}
}
