package ownerreferences

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	metadatafake "k8s.io/client-go/metadata/fake"
)

// kinds serves the kinds of served, and counts what it is asked.
type kinds struct{ lookups, reads int }

func (k *kinds) ResourceOf(kind schema.GroupKind) (ServedResource, bool) {
	k.lookups++
	return served(kind)
}

func (k *kinds) ReadResourceOf(context.Context, schema.GroupKind) (ServedResource, bool) {
	k.reads++
	return ServedResource{}, false
}

func served(kind schema.GroupKind) (ServedResource, bool) {
	where, ok := map[schema.GroupKind]ServedResource{
		{Kind: "ConfigMap"}:                 {"configmaps", true},
		{Kind: "Pod"}:                       {"pods", true},
		{Kind: "Node"}:                      {"nodes", false},
		{Group: "apps", Kind: "Deployment"}: {"deployments", true},
	}[kind]
	return where, ok
}

// ref parses "group/Kind name uid", with a ! at its end if it blocks.
func ref(text string) metav1.OwnerReference {
	text, blocking := strings.CutSuffix(text, "!")
	words := strings.Fields(text)
	r := metav1.OwnerReference{APIVersion: "v1", Kind: words[0], Name: words[1], UID: types.UID(words[2])}
	if group, kind, ok := strings.Cut(words[0], "/"); ok {
		r.APIVersion, r.Kind = group+"/v1", kind
	}
	if blocking {
		r.BlockOwnerDeletion = &blocking
	}
	return r
}

func refs(texts ...string) []metav1.OwnerReference {
	var all []metav1.OwnerReference
	for _, text := range texts {
		all = append(all, ref(text))
	}
	return all
}

func many(n int) []metav1.OwnerReference {
	var all []metav1.OwnerReference
	for i := range n {
		all = append(all, ref(fmt.Sprintf("ConfigMap o%d u%d", i, i)))
	}
	return all
}

const (
	a, aBlocking = "ConfigMap a ua", "ConfigMap a ua!"
	b, bBlocking = "apps/Deployment b ub", "apps/Deployment b ub!"
	node         = "Node n un!"
)

// A name that no object has is not looked up: with the server's rights, its path would lead anywhere.
func TestNamesOfNoObjectAreNotLookedUp(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	client := metadatafake.NewSimpleMetadataClient(runtime.NewScheme())
	lookup := Lookup{Mapper: mapper, Metadata: client}
	for _, name := range []string{"../../kube-system/secrets/a", "..", "a/b", "%2e%2e"} {
		if exists, err := lookup.Exists(t.Context(), schema.GroupKind{Kind: "ConfigMap"}, "shop", metav1.OwnerReference{Name: name, UID: "u"}); exists || err != nil {
			t.Errorf("%s: %t %v", name, exists, err)
		}
	}
	if sent := client.Actions(); len(sent) > 0 {
		t.Errorf("sent %v", sent)
	}
}

// Permissions are written as verb group/resource@namespace.
func TestPermissionsThatAWriteNeeds(t *testing.T) {
	const deletePod = "delete /pods@ns"
	pod := Write{Kind: schema.GroupKind{Kind: "Pod"}, Resource: schema.GroupResource{Resource: "pods"}, Namespace: "ns", Name: "p", UID: "up"}
	created := pod
	created.Creates = true
	cluster := Write{Kind: schema.GroupKind{Kind: "Node"}, Resource: schema.GroupResource{Resource: "nodes"}, Name: "n1", UID: "un1"}
	byNode := cluster
	byNode.ByNode = true
	for name, test := range map[string]struct {
		write     Write
		old, want []metav1.OwnerReference
		rights    string
		wrong     string
	}{
		"AD-01 create without":                      {created, nil, nil, "", ""},
		"AD-01 create with one":                     {created, nil, refs(a, b), "", ""},
		"AD-02 nothing changes":                     {pod, refs(a, bBlocking), refs(a, bBlocking), "", ""},
		"AD-02 one is added":                        {pod, refs(a), refs(a, b), deletePod, ""},
		"AD-02 one is replaced":                     {pod, refs(a), refs(b), deletePod, ""},
		"AD-02 one is removed: stricter elsewhere":  {pod, refs(a, b), refs(b), "", ""},
		"AD-02 all are removed":                     {pod, refs(aBlocking, b), nil, "", ""},
		"AD-02 another uid of the same name":        {pod, refs(a), refs("ConfigMap a other"), deletePod, ""},
		"AD-03 create, blocking":                    {created, nil, refs(aBlocking), "update /configmaps/finalizers@ns", ""},
		"AD-03 create, blocking two":                {created, nil, refs(aBlocking, bBlocking), "update /configmaps/finalizers@ns, update apps/deployments/finalizers@ns", ""},
		"AD-03 a cluster-scoped owner":              {created, nil, refs(node), "update /nodes/finalizers@", ""},
		"AD-03 update, a blocking one is added":     {pod, refs(a), refs(a, bBlocking), deletePod + ", update apps/deployments/finalizers@ns", ""},
		"AD-03 the one that blocks stays":           {pod, refs(aBlocking), refs(aBlocking, b), deletePod, ""},
		"AD-04 it begins to block":                  {pod, refs(a), refs(aBlocking), deletePod + ", update /configmaps/finalizers@ns", ""},
		"AD-04 it stops blocking":                   {pod, refs(aBlocking), refs(a), "", ""},
		"AD-04 it stops blocking, another goes":     {pod, refs(aBlocking, b), refs(a), "", ""},
		"AD-04 another name of the same uid blocks": {pod, refs(aBlocking), refs("ConfigMap z ua!"), deletePod + ", update /configmaps/finalizers@ns", ""},
		"AD-06 the order changes":                   {pod, refs(a, b), refs(b, a), deletePod, ""},
		"AD-06 a kind that is not served, blocking": {created, nil, refs("x.io/Widget w uw!"), "", "kind Widget is not served in API group x.io"},
		"a kind that is not served":                 {created, nil, refs("Widget w uw"), "", "kind Widget is not served in the core API group"},
		"a kind that is not served any more":        {pod, refs("x.io/Widget w uw", a), refs("x.io/Widget w uw"), "", ""},
		"a version that is not served":              {created, nil, []metav1.OwnerReference{{APIVersion: "apps/v7", Kind: "Deployment", Name: "b", UID: "ub"}}, "", ""},
		"a namespaced owner of a cluster's":         {cluster, nil, refs(a), "delete /nodes@", "cluster-scoped object cannot be owned by a ConfigMap"},
		"a cluster-scoped owner of a cluster's":     {cluster, nil, refs("Node n un"), "delete /nodes@", ""},
		"itself, by uid":                            {pod, nil, refs("Pod p up"), deletePod, "cannot own itself"},
		"itself, by uid under another name":         {pod, nil, refs("Pod q up"), deletePod, "cannot own itself"},
		"itself as it was before":                   {created, nil, refs("Pod p older"), "", "cannot own itself, nor be owned"},
		"a namesake of another kind":                {created, nil, refs("ConfigMap p up2"), "", ""},
		"as many as there may be":                   {created, nil, many(MaxReferences), "", ""},
		"one too many":                              {created, nil, many(MaxReferences + 1), "", "must have at most 64"},
		"fewer, but still too many":                 {pod, many(MaxReferences + 9), many(MaxReferences + 8), "", ""},
		"a node, about nodes":                       {byNode, nil, refs("Node n un"), "delete /nodes@", "nodes may not set"},
		"a node, about nodes, to no owner":          {byNode, refs("Node n un"), nil, "", "nodes may not set"},
		"a node, something else about nodes":        {byNode, refs("Node n un"), refs("Node n un"), "", ""},
		"a reference of no form":                    {created, nil, []metav1.OwnerReference{{APIVersion: "a/b/c", Kind: "Pod", BlockOwnerDeletion: new(bool)}}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			test.write.Old, test.write.Wants = test.old, test.want
			rights, errs := Check(test.write, served)
			var words []string
			for _, r := range rights {
				resource := r.Resource.Group + "/" + r.Resource.Resource
				if r.Subresource != "" {
					resource += "/" + r.Subresource
				}
				words = append(words, fmt.Sprintf("%s %s@%s", r.Verb, resource, r.Namespace))
			}
			if got := strings.Join(words, ", "); got != test.rights {
				t.Errorf("rights %q, want %q", got, test.rights)
			}
			if got := errs.ToAggregate(); (got == nil) != (test.wrong == "") || got != nil && !strings.Contains(got.Error(), test.wrong) {
				t.Errorf("wrong %v, want %q", got, test.wrong)
			}
		})
	}
}

// rights is an authorizer of a user with the named permissions.
type rights map[string]bool

func (r rights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if r[strings.Join([]string{a.GetVerb(), a.GetResource(), a.GetSubresource(), a.GetNamespace()}, " ")] {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func TestRefusalNamesTheMissingRule(t *testing.T) {
	pod := func(owners ...metav1.OwnerReference) runtime.Object {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", OwnerReferences: owners}}
	}
	for name, test := range map[string]struct {
		may  rights
		new  runtime.Object
		says []string
	}{
		"no right": {nil, pod(ref(b)), []string{
			`pods "p" is forbidden: `, `cannot set an ownerRef on a resource you can't delete`,
			`user "ann" lacks the rule {apiGroups: [""], resources: ["pods"], verbs: ["delete"]} in a Role in namespace "ns"`,
		}},
		"the right to delete": {rights{"delete pods  ns": true}, pod(ref(b)), nil},
		"not to block": {rights{"delete pods  ns": true}, pod(ref(bBlocking)), []string{
			`can't set finalizers on: user "ann" lacks the rule {apiGroups: ["apps"], resources: ["deployments/finalizers"], verbs: ["update"]} in a Role in namespace "ns"`,
		}},
		"not to block a cluster-scoped owner": {rights{"delete pods  ns": true}, pod(ref(node)), []string{
			`{apiGroups: [""], resources: ["nodes/finalizers"], verbs: ["update"]} in a ClusterRole bound by a ClusterRoleBinding`,
		}},
		"both": {rights{"delete pods  ns": true, "update deployments finalizers ns": true}, pod(ref(bBlocking)), nil},
		"invalid for every user": {rights{"delete pods  ns": true}, pod(ref("Widget w uw")), []string{
			`metadata.ownerReferences[0].kind: Invalid value: "Widget"`,
		}},
	} {
		p, err := NewAdmission(&kinds{}, test.may)
		if err != nil {
			t.Fatal(err)
		}
		attributes := admission.NewAttributesRecord(test.new, pod(ref(a)), schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, "ns", "p",
			schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "", admission.Update, &metav1.UpdateOptions{}, false, &user.DefaultInfo{Name: "ann"})
		err = p.Validate(t.Context(), attributes, nil)
		if (err == nil) != (test.says == nil) || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
		for _, words := range test.says {
			if err != nil && !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %v\nwant %s", name, err, words)
			}
		}
	}
}

// AD-06: the plug-in needs its dependencies.
func TestAdmissionNeedsBoth(t *testing.T) {
	for _, p := range []struct {
		kinds     Kinds
		authorize authorizer.UnconditionalAuthorizer
	}{{nil, rights{}}, {&kinds{}, nil}} {
		if _, err := NewAdmission(p.kinds, p.authorize); err == nil {
			t.Error("no error")
		}
	}
}

// A write costs a bounded number of reads, whatever it names, and whoever sends it: too many references cost none.
func TestReferencesCostFewReads(t *testing.T) {
	unserved := func(n int, format string) (all []metav1.OwnerReference) {
		for i := range n {
			all = append(all, ref(fmt.Sprintf(format, i)))
		}
		return all
	}
	for name, test := range map[string]struct {
		owners         []metav1.OwnerReference
		lookups, reads int
	}{
		"far too many":            {unserved(4000, "x.io/Kind%d o u%[1]d!"), 0, 0},
		"each of another kind":    {unserved(MaxReferences, "x.io/Kind%d o u%[1]d!"), MaxReferences, maxReads},
		"all of one kind":         {unserved(MaxReferences, "x.io/Kind o u%d!"), 1, 1},
		"all of a served kind":    {many(MaxReferences), 1, 0},
		"of kinds that are mixed": {append(many(3), unserved(2, "x.io/Kind o u%d")...), 2, 1},
	} {
		k := &kinds{}
		p, err := NewAdmission(k, rights{})
		if err != nil {
			t.Fatal(err)
		}
		review := &authorizationv1.SelfSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{OwnerReferences: test.owners}}
		gvk := authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview")
		_ = p.Validate(t.Context(), admission.NewAttributesRecord(review, nil, gvk, "", "", authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews"),
			"", admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "ann"}), nil)
		if k.lookups != test.lookups || k.reads != test.reads {
			t.Errorf("%s: %d lookups and %d reads, want %d and %d", name, k.lookups, k.reads, test.lookups, test.reads)
		}
	}
}
