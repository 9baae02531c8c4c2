package verdict_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// TestVerdictsOfScenarios replays the files in testdata. Their language, one command each:
//
//	new                 an empty graph that knows the scope of the kinds in standardScopes
//	observe | refresh   one object a line, see parseObject
//	replace <kind>      the same, as a complete list of that kind
//	forget              <uid> [rv=<version>] a line
//	vanish              <uid> a line
//	scope               <kind> namespaced|cluster|unknown a line
//	resolve             <kind> [<namespace>/]<name> <uid> absent|present [<phase>] a line
//	epoch
//	decide [<uid>...]   the decisions about these objects, or about all
//	stats               the size of the graph
//
// Commands that change the graph print the UIDs to reconsider. The graph is
// checked after each.
func TestVerdictsOfScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := newScenario(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			s.t = t
			out := s.run(d)
			if err := s.graph.Check(); err != nil {
				t.Fatalf("%s: %v", d.Pos, err)
			}
			return out
		})
	})
}

// scenario is a graph that is fed with text.
type scenario struct {
	t       *testing.T
	graph   *ownership.Graph
	version int // of the last observation that did not state its own
}

var standardScopes = map[string]ownership.Scope{
	"ConfigMap":             ownership.Namespaced,
	"CronJob.batch":         ownership.Namespaced,
	"Job.batch":             ownership.Namespaced,
	"Pod":                   ownership.Namespaced,
	"Deployment.apps":       ownership.Namespaced,
	"ReplicaSet.apps":       ownership.Namespaced,
	"ReplicationController": ownership.Namespaced,
	"Node":                  ownership.Cluster,
	"ClusterRole.rbac":      ownership.Cluster,
}

func newScenario(t *testing.T) *scenario {
	s := &scenario{t: t}
	s.reset()
	return s
}

func (s *scenario) reset() {
	s.graph, s.version = ownership.New(), 0
	for kind, scope := range standardScopes {
		s.graph.SetScope(parseKind(kind), scope)
	}
}

func (s *scenario) run(d *datadriven.TestData) string {
	var out strings.Builder
	lines := strings.FieldsFunc(d.Input, func(r rune) bool { return r == '\n' })
	each := func(change func(fields []string) []ownership.UID) {
		for _, line := range lines {
			fields := strings.Fields(line)
			fmt.Fprintf(&out, "%s: %s\n", fields[0], toReconsider(change(fields)))
		}
	}
	switch d.Cmd {
	case "new":
		s.reset()
	case "observe":
		each(func(f []string) []ownership.UID { return s.graph.Observe(s.parseObject(f)) })
	case "refresh":
		each(func(f []string) []ownership.UID { return s.graph.Refresh(s.parseObject(f)) })
	case "replace":
		var objects []ownership.Object
		for _, line := range lines {
			objects = append(objects, s.parseObject(strings.Fields(line)))
		}
		fmt.Fprintln(&out, toReconsider(s.graph.Replace(parseKind(d.CmdArgs[0].Key), objects)))
	case "forget":
		each(func(f []string) []ownership.UID { return s.graph.Forget(ownership.UID(f[0]), s.parseVersion(f)) })
	case "vanish":
		each(func(f []string) []ownership.UID { return s.graph.Vanish(ownership.UID(f[0])) })
	case "scope":
		each(func(f []string) []ownership.UID { return s.graph.SetScope(parseKind(f[0]), s.parseScope(f[1])) })
	case "resolve":
		each(s.resolve)
	case "epoch":
		fmt.Fprintln(&out, toReconsider(s.graph.NewEpoch()))
	case "decide":
		var uids []ownership.UID
		for _, arg := range d.CmdArgs {
			uids = append(uids, ownership.UID(arg.Key))
		}
		out.WriteString(s.decide(uids...))
	case "stats":
		fmt.Fprintf(&out, "%+v\n", s.graph.Stats())
	default:
		d.Fatalf(s.t, "unknown command %q", d.Cmd)
	}
	return out.String()
}

func toReconsider(uids []ownership.UID) string {
	if len(uids) == 0 {
		return "nothing to reconsider"
	}
	return "reconsider " + join(uids)
}

func join(uids []ownership.UID) string {
	var texts []string
	for _, uid := range uids {
		texts = append(texts, string(uid))
	}
	return strings.Join(texts, " ")
}

// observe and decide are for tests in Go that speak the language of the scenarios.
func (s *scenario) observe(lines ...string) (reconsider []ownership.UID) {
	for _, line := range lines {
		reconsider = append(reconsider, s.graph.Observe(s.parseObject(strings.Fields(line)))...)
	}
	slices.Sort(reconsider)
	return slices.Compact(reconsider)
}

func (s *scenario) forget(uid ownership.UID) []ownership.UID {
	s.version++
	return s.graph.Forget(uid, strconv.Itoa(s.version))
}

func (s *scenario) decide(uids ...ownership.UID) string {
	if len(uids) == 0 {
		for o := range s.graph.All() {
			uids = append(uids, o.UID)
		}
	}
	var out strings.Builder
	for _, uid := range uids {
		facts, ok := verdict.Gather(s.graph, uid)
		if !ok {
			fmt.Fprintf(&out, "%s: not observed\n", uid)
			continue
		}
		fmt.Fprintf(&out, "%s: %s\n", uid, verdict.Decide(facts))
		for _, report := range facts.Reports {
			fmt.Fprintf(&out, "%s: report: %s\n", uid, report.Why)
		}
	}
	return out.String()
}

func (s *scenario) resolve(fields []string) []ownership.UID {
	c := ownership.Claim{Kind: parseKind(fields[0]), UID: ownership.UID(fields[2])}
	c.Namespace, c.Name = parseName(fields[1])
	phase := ownership.Active
	if len(fields) > 4 {
		phase = s.parsePhase(fields[4])
	}
	return s.graph.Resolve(c, map[string]ownership.Presence{
		"absent": ownership.Absent, "present": ownership.Present, "unknown": ownership.Unknown,
	}[fields[3]], phase)
}

// parseObject reads
//
//	<uid> <kind> [<namespace>/]<name> [rv=<version>] [deleting|foreground|orphaning]
//	      [finalizers=a,b] [owner=<apiVersion>:<kind>:<name>:<uid>[:blocking|:nonblocking][:controller]]...
//
// where foreground and orphaning stand for deleting with that finalizer.
func (s *scenario) parseObject(fields []string) ownership.Object {
	o := ownership.Object{UID: ownership.UID(fields[0]), Kind: parseKind(fields[1])}
	o.Namespace, o.Name = parseName(fields[2])
	deleting := false
	for _, field := range fields[3:] {
		word, value, _ := strings.Cut(field, "=")
		switch word {
		case "rv":
		case "deleting":
			deleting = true
		case "foreground":
			deleting = true
			o.Finalizers = append(o.Finalizers, ownership.FinalizerForeground)
		case "orphaning":
			deleting = true
			o.Finalizers = append(o.Finalizers, ownership.FinalizerOrphan)
		case "finalizers":
			o.Finalizers = append(o.Finalizers, strings.Split(value, ",")...)
		case "owner":
			o.Owners = append(o.Owners, s.parseOwner(value))
		default:
			s.t.Fatalf("object %s: what is %q?", fields[0], field)
		}
	}
	o.ResourceVersion = s.parseVersion(fields)
	o.Phase = ownership.PhaseOf(deleting, o.Finalizers)
	return o
}

func (s *scenario) parseOwner(text string) ownership.Reference {
	parts := strings.Split(text, ":")
	if len(parts) < 4 {
		s.t.Fatalf("owner %q: want apiVersion:kind:name:uid", text)
	}
	r := ownership.Reference{APIVersion: parts[0], Kind: parts[1], Name: parts[2], UID: ownership.UID(parts[3])}
	for _, flag := range parts[4:] {
		switch flag {
		case "blocking":
			r.BlockOwnerDeletion = ownership.True
		case "nonblocking":
			r.BlockOwnerDeletion = ownership.False
		case "controller":
			r.Controller = ownership.True
		default:
			s.t.Fatalf("owner %q: what is %q?", text, flag)
		}
	}
	return r
}

func (s *scenario) parseVersion(fields []string) string {
	for _, field := range fields {
		if text, ok := strings.CutPrefix(field, "rv="); ok {
			return text
		}
	}
	s.version++
	return strconv.Itoa(s.version)
}

func (s *scenario) parseScope(text string) ownership.Scope {
	for _, scope := range []ownership.Scope{ownership.ScopeUnknown, ownership.Namespaced, ownership.Cluster} {
		if scope.String() == text {
			return scope
		}
	}
	s.t.Fatalf("what scope is %q?", text)
	return 0
}

func (s *scenario) parsePhase(text string) ownership.Phase {
	for _, phase := range []ownership.Phase{
		ownership.Active, ownership.Orphaning, ownership.Foreground, ownership.Terminating,
	} {
		if phase.String() == text {
			return phase
		}
	}
	s.t.Fatalf("what phase is %q?", text)
	return 0
}

func parseKind(text string) ownership.Kind {
	kind, group, _ := strings.Cut(text, ".")
	return ownership.Kind{Group: group, Kind: kind}
}

func parseName(text string) (namespace, name string) {
	if namespace, name, ok := strings.Cut(text, "/"); ok {
		return namespace, name
	}
	return "", text
}
