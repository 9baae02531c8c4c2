package insight_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/insight"
)

// TestPicturesOfGraphs replays the files in testdata. Their commands are
//
//	new               an empty graph
//	observe           one object a line: <kind> [<namespace>/]<name> uid=<uid> [owners=<owner>,…] [phase=…] [finalizers=…]
//	                  where <owner> is <kind>:<name>:<uid>[:blocking][:controller]; %XX stands for a byte
//	forget            <uid> a line: its DELETED event
//	dot|json|svg|mermaid|tree [<uid>…]
//	                  the graph: whole, or around some objects (GB-08, GB-10)
//	tree-up, tree-down <uid>…
//	                  the owners, or the dependents, of some objects, in turn
func TestPicturesOfGraphs(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		g := newGraph()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			switch d.Cmd {
			case "new":
				g = newGraph()
			case "observe":
				for line := range strings.Lines(d.Input) {
					g.Observe(parse(t, strings.TrimSpace(line)))
				}
			case "forget":
				for uid := range strings.FieldsSeq(d.Input) {
					g.Forget(ownership.UID(uid), "900")
				}
			default:
				name, direction, _ := strings.Cut(d.Cmd, "-")
				format, err := insight.ParseFormat(name)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				var uids []ownership.UID
				for _, arg := range d.CmdArgs {
					uids = append(uids, ownership.UID(arg.Key))
				}
				return drawn(t, g, format, direction, uids)
			}
			return ""
		})
	})
}

// The part of a graph about a namespace has its objects, and their owners and dependents elsewhere, whole.
func TestGraphInNamespace(t *testing.T) {
	g := newGraph()
	for _, line := range []string{
		"Node n1 uid=n1", "Node n2 uid=n2", "Pod shop/a uid=a owners=Node:n1:n1", "Pod other/b uid=b owners=Node:n1:n1", "Pod other/c uid=c owners=Node:n2:n2",
		"ConfigMap shop/d uid=d owners=Pod:gone:gone",
	} {
		g.Observe(parse(t, line))
	}
	for namespace, want := range map[string]string{"shop": "d n1 gone a a<n1 d<gone", "other": "n1 n2 b c b<n1 c<n2", "none": ""} {
		part := insight.Whole(viewOf(g)).In(namespace)
		got := ""
		for i := range part.Objects {
			got += string(part.Objects[i].UID) + " "
		}
		for _, r := range part.References {
			got += fmt.Sprintf("%s<%s ", r.Dependent, r.Owner)
		}
		if !sameWords(got, want) {
			t.Errorf("%s: %s, want %s", namespace, got, want)
		}
		if text, err := part.Encode(insight.Tree); err != nil || strings.Contains(string(text), "none/") {
			t.Errorf("%s: %v\n%s", namespace, err, text)
		}
	}
}

// sameWords compares words regardless of their order.
func sameWords(a, b string) bool {
	return slices.Equal(slices.Sorted(slices.Values(strings.Fields(a))), slices.Sorted(slices.Values(strings.Fields(b))))
}

func newGraph() *ownership.Graph {
	g := ownership.New()
	for _, kind := range []string{"Pod", "ConfigMap", "Deployment.apps", "ReplicaSet.apps", "CronJob.batch", "Job.batch"} {
		g.SetScope(parseKind(kind), ownership.Namespaced)
	}
	for _, kind := range []string{"Node", "ClusterRole.rbac.authorization.k8s.io"} {
		g.SetScope(parseKind(kind), ownership.Cluster)
	}
	return g
}

// viewOf returns a View of a graph that does not change.
func viewOf(g *ownership.Graph) insight.View {
	return func(read func(g *ownership.Graph)) { read(g) }
}

func drawn(t *testing.T, g *ownership.Graph, format insight.Format, direction string, uids []ownership.UID) string {
	t.Helper()
	picture := insight.Whole(viewOf(g))
	switch {
	case direction == "up":
		picture = insight.Owners(viewOf(g), uids...)
	case direction == "down":
		picture = insight.Dependents(viewOf(g), uids...)
	case len(uids) > 0:
		picture = insight.Component(viewOf(g), uids...)
	}
	text, err := picture.Encode(format)
	if err != nil {
		return err.Error()
	}
	if format == insight.SVG {
		checkXML(t, string(text))
	}
	return string(text)
}

// checkXML checks that a drawing is well-formed and has no scripts.
func checkXML(t *testing.T, text string) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(text))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		if start, ok := token.(xml.StartElement); ok && strings.EqualFold(start.Name.Local, "script") {
			t.Fatal("a script in a drawing")
		}
	}
}

func parseKind(text string) ownership.Kind {
	kind, group, _ := strings.Cut(text, ".")
	return ownership.Kind{Group: group, Kind: kind}
}

func parse(t *testing.T, line string) ownership.Object {
	t.Helper()
	fields := strings.Fields(line)
	if len(fields) < 3 {
		t.Fatalf("object %q", line)
	}
	o := ownership.Object{Kind: parseKind(fields[0]), Name: unescape(t, fields[1]), ResourceVersion: "1"}
	if namespace, name, ok := strings.Cut(fields[1], "/"); ok {
		o.Namespace, o.Name = namespace, unescape(t, name)
	}
	for _, field := range fields[2:] {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "uid":
			o.UID = ownership.UID(value)
		case "finalizers":
			o.Finalizers = strings.Split(value, ",")
		case "phase":
			for p := ownership.Active; p <= ownership.Terminating; p++ {
				if p.String() == value {
					o.Phase = p
				}
			}
		case "owners":
			for owner := range strings.SplitSeq(value, ",") {
				o.Owners = append(o.Owners, parseOwner(t, owner))
			}
		}
	}
	return o
}

func parseOwner(t *testing.T, text string) ownership.Reference {
	t.Helper()
	parts := strings.Split(text, ":")
	if len(parts) < 3 {
		t.Fatalf("owner %q", text)
	}
	kind := parseKind(parts[0])
	r := ownership.Reference{APIVersion: "v1", Kind: kind.Kind, Name: unescape(t, parts[1]), UID: ownership.UID(parts[2])}
	if kind.Group != "" {
		r.APIVersion = kind.Group + "/v1"
	}
	for _, flag := range parts[3:] {
		switch flag {
		case "blocking":
			r.BlockOwnerDeletion = ownership.True
		case "controller":
			r.Controller = ownership.True
		}
	}
	return r
}

// unescape reads %XX as a byte.
func unescape(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	for {
		before, after, ok := strings.Cut(text, "%")
		out.WriteString(before)
		if !ok {
			return out.String()
		}
		b, err := strconv.ParseUint(after[:2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteByte(byte(b))
		text = after[2:]
	}
}

// TestOrderDoesNotMatter observes the same objects in two orders and expects the same encoded
// bytes.
func TestOrderDoesNotMatter(t *testing.T) {
	var objects []ownership.Object
	for i := range 60 {
		o := ownership.Object{UID: ownership.UID(fmt.Sprintf("u%02d", i)), Kind: parseKind("ConfigMap"), Namespace: "ns", Name: fmt.Sprintf("c%d", i), ResourceVersion: "1"}
		for _, owner := range []int{i / 3, i * 7 % 60} {
			if owner != i {
				o.Owners = append(o.Owners, ownership.Reference{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprintf("c%d", owner), UID: ownership.UID(fmt.Sprintf("u%02d", owner))})
			}
		}
		objects = append(objects, o)
	}
	there, back := newGraph(), newGraph()
	for i := range objects {
		there.Observe(objects[i])
		back.Observe(objects[len(objects)-1-i])
	}
	for _, format := range []insight.Format{insight.DOT, insight.JSON, insight.SVG, insight.Tree, insight.Mermaid} {
		for _, uids := range [][]ownership.UID{nil, {"u07"}, {"u41", "u07"}} {
			if a, b := drawn(t, there, format, "", uids), drawn(t, back, format, "", uids); a != b {
				t.Errorf("%s of %v depends on the order of observation", format, uids)
			}
		}
	}
}

// TestObjectDeletedBetweenBatchesIsMissing reads more objects than one batch has, and changes the graph between two
// reads: an object that is deleted meanwhile is shown as missing.
func TestObjectDeletedBetweenBatchesIsMissing(t *testing.T) {
	g := newGraph()
	g.Observe(ownership.Object{UID: "owner", Kind: parseKind("ConfigMap"), Namespace: "ns", Name: "owner", ResourceVersion: "1"})
	const dependents = 1000
	for i := range dependents {
		g.Observe(ownership.Object{
			UID: ownership.UID(fmt.Sprintf("d%03d", i)), Kind: parseKind("ConfigMap"), Namespace: "ns", Name: fmt.Sprintf("d%d", i), ResourceVersion: "1",
			Owners: []ownership.Reference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner"}},
		})
	}
	reads := 0
	picture := insight.Component(func(read func(g *ownership.Graph)) {
		reads++
		read(g)
	}, "d500")
	if len(picture.Objects) != dependents+1 || len(picture.References) != dependents {
		t.Errorf("%d objects, %d references; want %d and %d", len(picture.Objects), len(picture.References), dependents+1, dependents)
	}
	if reads < 4 {
		t.Errorf("%d objects were read in %d batches", dependents, reads)
	}

	reads = 0
	picture = insight.Component(func(read func(g *ownership.Graph)) {
		if reads++; reads == 2 {
			g.Forget("owner", "2")
		}
		read(g)
	}, "d500")
	for _, o := range picture.Objects {
		if o.UID == "owner" && !o.Missing {
			t.Error("the owner was deleted meanwhile, and is not shown as missing")
		}
	}
}

// TestTooLargeToDraw: a graph that is too large for a drawing is encoded in other formats.
func TestTooLargeToDraw(t *testing.T) {
	var g insight.Graph
	for i := range 5001 {
		g.Objects = append(g.Objects, insight.Object{UID: ownership.UID(strconv.Itoa(i)), Kind: "Pod", Name: "p", Phase: "active"})
	}
	if _, err := g.Encode(insight.SVG); !errors.Is(err, insight.ErrTooLarge) {
		t.Errorf("drawing 5001 objects: %v", err)
	}
	if _, err := g.Encode(insight.DOT); err != nil {
		t.Error(err)
	}
}

func BenchmarkDraw(b *testing.B) {
	g := newGraph()
	g.Observe(ownership.Object{UID: "owner", Kind: parseKind("ConfigMap"), Namespace: "ns", Name: "owner", ResourceVersion: "1"})
	for i := range 4900 {
		owner := "owner"
		if i > 70 {
			owner = fmt.Sprintf("d%d", i%70)
		}
		g.Observe(ownership.Object{
			UID: ownership.UID(fmt.Sprintf("d%d", i)), Kind: parseKind("ConfigMap"), Namespace: "ns", Name: fmt.Sprintf("d%d", i), ResourceVersion: "1",
			Owners: []ownership.Reference{
				{APIVersion: "v1", Kind: "ConfigMap", Name: owner, UID: ownership.UID(owner)},
				{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprintf("d%d", i/3), UID: ownership.UID(fmt.Sprintf("d%d", i/3))},
			},
		})
	}
	for b.Loop() {
		if _, err := insight.Whole(viewOf(g)).Encode(insight.SVG); err != nil {
			b.Fatal(err)
		}
	}
}
