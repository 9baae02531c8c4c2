package servicecidrs

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// aRange returns a ServiceCIDR that is protected and ready.
func aRange(name string, cidrs ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", ResourceVersion: "7", Finalizers: []string{"a/b", Finalizer}},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: cidrs},
		Status: networkingv1.ServiceCIDRStatus{Conditions: []metav1.Condition{
			{Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, Message: readyMessage},
		}},
	}
}

func deleted(cidr *networkingv1.ServiceCIDR) *networkingv1.ServiceCIDR {
	cidr.DeletionTimestamp = &metav1.Time{Time: epoch}
	return cidr
}

func without(cidr *networkingv1.ServiceCIDR, finalizers, conditions bool) *networkingv1.ServiceCIDR {
	if finalizers {
		cidr.Finalizers = nil
	}
	if conditions {
		cidr.Status.Conditions = nil
	}
	return cidr
}

// A ServiceCIDR is protected before it is ready. A ServiceCIDR that is being deleted stays for its
// grace, and while one of its addresses is in use and in no other range that stays.
func TestDecideRange(t *testing.T) {
	const ours, others = "10.1.0.0/24", "10.0.0.0/8"
	blocked := deleted(aRange("a", ours))
	blocked.Status.Conditions[0] = metav1.Condition{
		Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionFalse, Reason: networkingv1.ServiceCIDRReasonTerminating, Message: inUseMessage,
	}
	for name, test := range map[string]struct {
		cidr         *networkingv1.ServiceCIDR
		others       []*networkingv1.ServiceCIDR
		used         []string
		after        time.Duration
		finalizers   []string // those that are set; nil: none are
		condition    metav1.ConditionStatus
		requeueAfter time.Duration
	}{
		"new":                      {cidr: without(aRange("a", ours), true, true), finalizers: []string{Finalizer}},
		"protected":                {cidr: without(aRange("a", ours), false, true), condition: metav1.ConditionTrue},
		"ready":                    {cidr: aRange("a", ours)},
		"ready again":              {cidr: func() *networkingv1.ServiceCIDR { c := blocked.DeepCopy(); c.DeletionTimestamp = nil; return c }(), condition: metav1.ConditionTrue},
		"deleted":                  {cidr: deleted(aRange("a", ours)), after: 4 * time.Second, requeueAfter: 6 * time.Second},
		"deleted long ago":         {cidr: deleted(aRange("a", ours)), after: Grace, finalizers: []string{"a/b"}},
		"others' finalizer only":   {cidr: deleted(without(aRange("a", ours), true, false)), used: []string{"10.1.0.9"}},
		"in use":                   {cidr: deleted(aRange("a", ours)), used: []string{"10.1.0.9"}, after: time.Hour, condition: metav1.ConditionFalse},
		"in use, as is said":       {cidr: blocked, used: []string{"10.1.0.9"}, after: time.Hour},
		"in use, second family":    {cidr: deleted(aRange("a", ours, "fd00::/112")), used: []string{"fd00::9"}, after: time.Hour, condition: metav1.ConditionFalse},
		"another is in use":        {cidr: deleted(aRange("a", ours)), used: []string{"10.2.0.9"}, after: Grace, finalizers: []string{"a/b"}},
		"another contains it":      {cidr: deleted(aRange("a", ours)), others: []*networkingv1.ServiceCIDR{aRange("b", others)}, used: []string{"10.1.0.9"}, after: Grace, finalizers: []string{"a/b"}},
		"another goes, too":        {cidr: deleted(aRange("a", ours)), others: []*networkingv1.ServiceCIDR{deleted(aRange("b", others))}, used: []string{"10.1.0.9"}, after: Grace, condition: metav1.ConditionFalse},
		"another contains a part":  {cidr: deleted(aRange("a", others)), others: []*networkingv1.ServiceCIDR{aRange("b", ours)}, used: []string{"10.1.0.9", "10.2.0.9"}, after: Grace, condition: metav1.ConditionFalse},
		"another is of its family": {cidr: deleted(aRange("a", ours)), others: []*networkingv1.ServiceCIDR{aRange("b", "fd00::/112")}, used: []string{"10.1.0.9"}, after: Grace, condition: metav1.ConditionFalse},
	} {
		var used []netip.Addr
		for _, text := range test.used {
			used = append(used, netip.MustParseAddr(text))
		}
		now := epoch.Add(test.after)
		plan := DecideRange(test.cidr, append(test.others, test.cidr), used, now)
		if plan.SetFinalizers != (test.finalizers != nil) || !slices.Equal(plan.Finalizers, test.finalizers) || plan.RequeueAfter != test.requeueAfter {
			t.Errorf("%s: %+v", name, plan)
		}
		var status metav1.ConditionStatus
		if plan.Condition != nil {
			status = plan.Condition.Status
			if plan.Condition.Type != networkingv1.ServiceCIDRConditionReady || !plan.Condition.LastTransitionTime.Time.Equal(now) {
				t.Errorf("%s: %+v", name, plan.Condition)
			}
		}
		if status != test.condition {
			t.Errorf("%s: condition %q, want %q", name, status, test.condition)
		}
	}
}

func aService(name string, addresses ...string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.ServiceSpec{ClusterIPs: addresses}}
}

// The IPAddress of a service follows it; IPAddresses of other managers are left alone.
func TestDecideAddress(t *testing.T) {
	four, six := netip.MustParseAddr("10.1.0.9"), netip.MustParseAddr("fd00::9")
	mine, foreign := addressOf(four, aService("web")), addressOf(four, aService("web"))
	foreign.Labels = nil
	going := mine.DeepCopy()
	going.DeletionTimestamp = &metav1.Time{Time: epoch}
	headless := mine.DeepCopy()
	headless.Spec.ParentRef = nil
	for name, test := range map[string]struct {
		address netip.Addr
		service *corev1.Service
		known   *networkingv1.IPAddress
		want    string
	}{
		"neither":              {four, nil, nil, "keep"},
		"a new service":        {four, aService("web"), nil, "create IPv4 ns/web"},
		"one of IPv6":          {six, aService("web"), nil, "create IPv6 ns/web"},
		"both":                 {four, aService("web"), mine, "keep"},
		"no service":           {four, nil, mine, "delete"},
		"another service":      {four, aService("other"), mine, "delete"},
		"nobody's":             {four, aService("web"), headless, "delete"},
		"going already":        {four, nil, going, "keep"},
		"somebody else's":      {four, nil, foreign, "keep"},
		"somebody else has it": {four, aService("other"), foreign, "keep"},
	} {
		got := "keep"
		switch step := DecideAddress(test.address, test.service, test.known).(type) {
		case Create:
			parent := step.Address.Spec.ParentRef
			got = "create " + step.Address.Labels[networkingv1.LabelIPAddressFamily] + " " + parent.Namespace + "/" + parent.Name
			if step.Address.Name != test.address.String() || step.Address.Labels[networkingv1.LabelManagedBy] != managedBy || parent.Resource != "services" || parent.Group != "" {
				t.Errorf("%s: %+v", name, step.Address)
			}
		case Delete:
			got = "delete"
		case Keep:
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestAddressesOf(t *testing.T) {
	external := aService("web", "10.1.0.9")
	external.Spec.Type = corev1.ServiceTypeExternalName
	for name, test := range map[string]struct {
		service *corev1.Service
		want    int
	}{
		"one": {aService("web", "10.1.0.9"), 1}, "two": {aService("web", "10.1.0.9", "fd00::9"), 2},
		"headless": {aService("web", corev1.ClusterIPNone), 0}, "a name": {external, 0}, "none yet": {aService("web"), 0},
	} {
		if got := addressesOf(test.service); len(got) != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
