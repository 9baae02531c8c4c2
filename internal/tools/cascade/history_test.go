package cascade_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/cascade"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// TestHistories replays the files in testdata. Each of them is a wait: the objects that a user names, and then the
// clusters that the wait observes, one after the other.
//
//	named TYPE/NAME …
//
//	look [after=DURATION] [unread=RESOURCE] [refused=NAME]
//	KIND NAME[=UID] [< OWNER[=UID][!] …] [# FINALIZER …] [deleting] [always] [uses=CLAIM]
//
// A name is also the UID, if there is no other. All objects but Namespaces and CustomResourceDefinitions are in the
// namespace shop, and ! stands for blockOwnerDeletion. refused is an object that a policy keeps, always one that is
// protected. A prediction assumes that all controllers work.
func TestHistories(t *testing.T) {
	count := 0
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		h := &waiting{t: t}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			count++
			if d.Cmd == "named" {
				h.cascade, h.args, h.now = cascade.New(), nil, start
				for _, arg := range d.CmdArgs {
					h.args = append(h.args, arg.Key)
				}
				return ""
			}
			return h.look(d)
		})
	})
	if count < 40 {
		t.Errorf("only %d steps are in testdata", count)
	}
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// waiting is a wait.
type waiting struct {
	t       *testing.T
	cascade *cascade.Cascade
	args    []string
	now     time.Time
}

// look observes a cluster, and returns the report.
func (h *waiting) look(d *datadriven.TestData) string {
	args := map[string]string{}
	for _, arg := range d.CmdArgs {
		args[arg.Key] = arg.Vals[0]
	}
	after, err := time.ParseDuration(cmp.Or(args["after"], "0s"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.now = h.now.Add(after)
	inv := clusterOf(strings.Split(d.Input, "\n"), h.now)
	if args["unread"] != "" {
		inv.Unread = []inventory.Unread{{Resource: schema.GroupVersionResource{Version: "v1", Resource: args["unread"]}, Why: "no answer"}}
	}
	if len(h.args) > 0 { // the first time
		selectors, err := inv.ParseSelectors(h.args, "shop")
		if err == nil {
			err = h.cascade.Find(inv, selectors)
		}
		if err != nil {
			return err.Error()
		}
		h.args = nil
	}
	report, part := h.observe(inv, args["refused"])
	if len(part.Kept) > 0 {
		return "not deleted: " + part.Kept[0].String() + " (" + part.Kept[0].Why + ")"
	}
	if report.IsFinal() {
		return report.Text()
	}
	text := report.Progress()
	for _, s := range report.Stays {
		text += "stays: " + s.String() + ", " + s.Why + "\n"
	}
	return text
}

// observe does what answer.Cluster does, with facts that are known.
func (h *waiting) observe(inv *inventory.Inventory, refused string) (cascade.Report, cascade.Part) {
	prediction := preview.New(inv).Continue(h.cascade.Underway(inv), preview.Options{
		Now:      h.now,
		Released: func(*inventory.Object, string) bool { return true },
		Protection: func(o *inventory.Object) inventory.Fact[inventory.Protection] {
			return inventory.Fact[inventory.Protection]{Value: inventory.Protection{Protection: protection.New(o.Labels.Get(protection.Label), ""), Enforced: true}}
		},
		Admission: func(w preview.Write) preview.Judgement {
			if w.Object.Name != refused {
				return preview.Judgement{}
			}
			return preview.Judgement{Refusal: &refusal.Refusal{By: refusal.ByPolicy, Name: "keep", Binding: "keep", Message: "it is kept"}}
		},
	})
	part := h.cascade.Divide(inv, prediction)
	collector := explain.NewCollector("the collector")
	collector.Collects, collector.Empties = true, true
	for n := range prediction.Outcomes {
		if o := &prediction.Outcomes[n]; o.Refusal != nil {
			collector.Refused[o.Object.UID] = explain.Refused{Refusal: o.Refusal.Refusal, Since: h.now}
		}
	}
	explainer := explain.New(explain.Input{Inventory: inv, Collector: collector, Now: h.now})
	return h.cascade.Conclude(inv, part, explainer.Groups(part.Going), h.now), part
}

// resources returns the resources of a cluster.
func resources() []*inventory.Resource {
	var all []*inventory.Resource
	for _, one := range []struct {
		group, plural, kind string
		namespaced          bool
	}{
		{"", "configmaps", "ConfigMap", true},
		{"", "pods", "Pod", true},
		{"", "namespaces", "Namespace", false},
		{"", "persistentvolumeclaims", "PersistentVolumeClaim", true},
		{"apps", "deployments", "Deployment", true},
		{"apps", "statefulsets", "StatefulSet", true},
		{"apps", "daemonsets", "DaemonSet", true},
		{"coordination.k8s.io", "leases", "Lease", true},
		{"example.com", "widgets", "Widget", true},
		{"apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", false},
	} {
		all = append(all, &inventory.Resource{
			GroupVersionResource: schema.GroupVersionResource{Group: one.group, Version: "v1", Resource: one.plural},
			Kind:                 one.kind, Namespaced: one.namespaced, Deletable: true,
		})
	}
	return all
}

// clusterOf makes an inventory of lines.
func clusterOf(lines []string, now time.Time) *inventory.Inventory {
	inv := &inventory.Inventory{Read: now, Resources: resources(), Pods: map[ownership.UID]*inventory.Pod{}, Namespaces: map[ownership.UID]*corev1.Namespace{}}
	kinds := map[string]*inventory.Resource{} // by UID
	of := func(kind string) *inventory.Resource {
		return inv.Resources[slices.IndexFunc(inv.Resources, func(r *inventory.Resource) bool { return r.Kind == kind })]
	}
	identity := func(word string) (name string, uid ownership.UID) {
		name, other, ok := strings.Cut(strings.TrimSuffix(word, "!"), "=")
		if !ok {
			other = name
		}
		return name, ownership.UID(other)
	}
	lines = slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return strings.TrimSpace(line) == "" })
	for _, line := range lines {
		words := strings.Fields(line)
		_, uid := identity(words[1])
		kinds[string(uid)] = of(words[0])
	}
	for _, line := range lines {
		words := strings.Fields(line)
		o := &inventory.Object{Resource: of(words[0])}
		o.Name, o.UID = identity(words[1])
		o.Kind, o.ResourceVersion = o.Resource.OwnerKind(), "1"
		if o.Resource.Namespaced {
			o.Namespace = "shop"
		}
		mode, deleting, pod := "", false, inventory.Pod{}
		for _, word := range words[2:] {
			claim, isClaim := strings.CutPrefix(word, "uses=")
			switch {
			case isClaim:
				pod.Node, pod.Claims = "n1", append(pod.Claims, inventory.Claim{Name: claim})
			case word == "always":
				o.Protected, o.Labels = true, inventory.LabelsOf(map[string]string{protection.Label: word})
			case word == "<" || word == "#":
				mode = word
			case word == "deleting":
				deleting, o.Due = true, now.Unix()
			case mode == "#":
				o.Finalizers = append(o.Finalizers, word)
			default:
				name, uid := identity(word)
				owner := kinds[string(uid)]
				if owner == nil {
					owner = of("ConfigMap") // it is gone
				}
				r := ownership.Reference{APIVersion: owner.GroupVersion().String(), Kind: owner.Kind, Name: name, UID: uid}
				if strings.HasSuffix(word, "!") {
					r.BlockOwnerDeletion = ownership.True
				}
				o.Owners = append(o.Owners, r)
			}
		}
		o.Phase = ownership.PhaseOf(deleting, o.Finalizers)
		switch o.Resource.Kind {
		case "Pod":
			inv.Pods[o.UID] = &pod
		case "Namespace":
			inv.Namespaces[o.UID] = &corev1.Namespace{Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}}}
		}
		inv.Objects = append(inv.Objects, o)
	}
	inv.Index()
	return inv
}
