package history_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/history"
)

// noon is the time of the first line of a log; each line is a second later.
func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// The kinds of these tests.
var (
	configMap = ownership.Kind{Kind: "ConfigMap"}
	pod       = ownership.Kind{Kind: "Pod"}
)

// logOf parses lines of "USER VERB [GROUP/]RESOURCE[:SUBRESOURCE] NAMESPACE/NAME [key=value]" with the keys code,
// query, body, uid and reason. A namespace is "-" for none.
func logOf(t *testing.T, lines ...string) *history.Log {
	t.Helper()
	l := history.NewLog(nil)
	for n, text := range lines {
		f := strings.Fields(text)
		resource, sub, _ := strings.Cut(f[2], ":")
		group, name, ok := strings.Cut(resource, "/")
		if !ok {
			group, name = "", resource
		}
		namespace, object, _ := strings.Cut(f[3], "/")
		namespace = strings.TrimPrefix(namespace, "-")
		code, uri, body, uid, annotations := "200", "/x", "{}", "", "{}"
		for _, field := range f[4:] {
			key, value, _ := strings.Cut(field, "=")
			value = strings.ReplaceAll(value, "_", " ")
			switch key {
			case "code":
				code = value
			case "query":
				uri += "?" + value
			case "body":
				body = value
			case "uid":
				uid = value
			case "reason":
				annotations = fmt.Sprintf(`{"collector.coppice.dev/reason":%q}`, value)
			default:
				t.Fatalf("%q: what is %q?", text, key)
			}
		}
		line := fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","requestURI":%q,"verb":%q,"user":{"username":%q},`+
			`"objectRef":{"resource":%q,"namespace":%q,"name":%q,"uid":%q,"apiGroup":%q,"subresource":%q},"responseStatus":{"code":%s},"requestObject":%s,`+
			`"stageTimestamp":%q,"annotations":%s}`, uri, f[1], f[0], name, namespace, object, uid, group, sub, code, body,
			noon().Add(time.Duration(n)*time.Second).Format(time.RFC3339Nano), annotations)
		if err := l.AddLine([]byte(line)); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
	}
	return l
}

const (
	collector  = "system:coppice:collector"
	namespaces = "system:coppice:namespace-controller"
	// absent is the collector's reason for a pod of a Deployment that is gone.
	absent = `reason={"decision":"delete_Background:_owners_absent","policy":"Background","owners":[{"kind":"Deployment.apps","namespace":"shop","name":"web","uid":"d","standing":"dangling","evidence":"deleted_event"}]}`
)

func TestDeletionIsExplainedFromRecordsAndAuditLogs(t *testing.T) {
	for _, test := range []struct {
		name   string
		log    []string
		target history.Target
		want   string // without the ages; empty if nothing is known
	}{
		{
			"by hand, with the policy of the body",
			[]string{`ann delete configmaps shop/c body={"propagationPolicy":"Foreground"}`},
			history.Target{Kind: configMap, Namespace: "shop", Name: "c"},
			`ConfigMap shop/c: gone
  deleted by ann, policy Foreground`,
		},
		{
			"with the policy of the query",
			[]string{`ann delete configmaps shop/c query=orphanDependents=true`},
			history.Target{Kind: configMap, Namespace: "shop", Name: "c"},
			`ConfigMap shop/c: gone
  deleted by ann, policy Orphan`,
		},
		{
			"dry runs, also of an eviction and of a write after the deletion",
			[]string{
				`eve delete configmaps shop/c query=dryRun=All`, `eve delete configmaps shop/c body={"dryRun":["All"]}`,
				`eve deletecollection configmaps shop/ query=dryRun=All`, `eve create configmaps:eviction shop/c body={"deleteOptions":{"dryRun":["All"]}}`,
				`ann delete configmaps shop/c body={"dryRun":[]}`, `bob update configmaps shop/c`, `eve create configmaps shop/c query=dryRun=All`,
				`eve patch configmaps shop/c query=dryRun=All`, `eve delete configmaps shop/c query=dryRun=All`,
			},
			history.Target{Kind: configMap, Namespace: "shop", Name: "c"},
			`ConfigMap shop/c: gone
  deleted by ann
    because it was last written by bob, 1s later: an object with finalizers goes when the last is removed`,
		},
		{
			"only dry runs",
			[]string{`eve delete configmaps shop/c query=dryRun=All`, `eve deletecollection configmaps shop/ body={"dryRun":["All"]}`},
			history.Target{Kind: configMap, Namespace: "shop", Name: "c"},
			"",
		},
		{
			"with writes whose bodies are no options",
			[]string{
				`ann delete configmaps shop/c`, `bob patch configmaps shop/d body=[{"op":"remove","path":"/data"}]`,
				`bob create configmaps shop/d body={"dryRun":true,"preconditions":"none"}`,
			},
			history.Target{Kind: configMap, Namespace: "shop", Name: "c"},
			`ConfigMap shop/c: gone
  deleted by ann`,
		},
		{
			"evicted with a policy",
			[]string{`ann create pods:eviction shop/p body={"deleteOptions":{"propagationPolicy":"Foreground"}}`},
			history.Target{Kind: pod, Namespace: "shop", Name: "p"},
			`Pod shop/p: gone
  evicted by ann, policy Foreground`,
		},
		{
			"refused, and another's",
			[]string{`ann delete configmaps shop/c code=403`, `ann delete configmaps other/c`, `ann delete secrets shop/c`},
			history.Target{Kind: configMap, Namespace: "shop", Name: "c"},
			"",
		},
		{
			"by the collector, because of the owner's deletion",
			[]string{`ann delete apps/deployments shop/web`, collector + ` delete pods shop/web-1 uid=p ` + absent, `system:node:n1 delete pods shop/web-1 uid=p`},
			history.Target{UID: "p", Kind: pod, Namespace: "shop", Name: "web-1"},
			`Pod shop/web-1: gone
  deleted by the garbage collector, system:coppice:collector, policy Background: delete Background: owners absent
    because the reference to Deployment.apps web is dangling, by a deleted event
    Deployment.apps shop/web: gone
      deleted by ann`,
		},
		{
			"an owner, by the uid that a reason names",
			[]string{`ann delete apps/deployments shop/web`, collector + ` delete pods shop/web-1 ` + absent},
			history.Target{UID: "d"},
			`Deployment.apps shop/web: gone
  deleted by ann`,
		},
		{
			"upstream's collector says no reason",
			[]string{`system:serviceaccount:kube-system:generic-garbage-collector delete pods shop/web-1`},
			history.Target{Kind: pod, Namespace: "shop", Name: "web-1"},
			`Pod shop/web-1: gone
  deleted by the garbage collector, system:serviceaccount:kube-system:generic-garbage-collector
    because the log does not name the deleted owner`,
		},
		{
			"with its namespace",
			[]string{`ann delete namespaces shop/shop`, namespaces + ` delete configmaps shop/c`},
			history.Target{Kind: configMap, Namespace: "shop", Name: "c"},
			`ConfigMap shop/c: gone
  deleted by the namespace controller, system:coppice:namespace-controller
    Namespace shop: gone
      deleted by ann`,
		},
		{
			"with a former namespace of the name",
			[]string{
				`ann delete namespaces shop/shop uid=1`, namespaces + ` delete configmaps shop/c uid=c`, `bob create namespaces shop/shop`,
				`eve delete namespaces shop/shop uid=2`, namespaces + ` delete configmaps shop/other uid=o`,
			},
			history.Target{UID: "c", Kind: configMap, Namespace: "shop", Name: "c"},
			`ConfigMap shop/c: gone
  deleted by the namespace controller, system:coppice:namespace-controller
    Namespace shop: gone
      deleted by ann`,
		},
		{
			"of a collection",
			[]string{namespaces + ` deletecollection configmaps shop/`, `ann deletecollection configmaps other/`},
			history.Target{Kind: configMap, Namespace: "shop", Name: "c"},
			`ConfigMap shop/c: gone
  perhaps: deleted with others of its kind by the namespace controller, system:coppice:namespace-controller
    because no request names the object; this one was for all of its kind that it selected`,
		},
		{
			"with the definition of its kind",
			[]string{`ann delete apiextensions.k8s.io/customresourcedefinitions -/widgets.example.com`},
			history.Target{Kind: ownership.Kind{Group: "example.com", Kind: "Widget"}, Namespace: "shop", Name: "w"},
			`Widget.example.com shop/w: gone
  perhaps: no request names the object, but the definition of its kind was deleted
    CustomResourceDefinition.apiextensions.k8s.io widgets.example.com: gone
      deleted by ann`,
		},
		{
			"the last of that name, and who removed its finalizer",
			[]string{
				`ann delete configmaps shop/c`, `ann create configmaps shop/c`, `eve delete configmaps shop/c`,
				`bob patch configmaps shop/c`, `bob create configmaps shop/c`, `bob patch configmaps shop/c`,
			},
			history.Target{Kind: configMap, Namespace: "shop", Name: "c"},
			`ConfigMap shop/c: gone
  deleted by eve
    because it was last written by bob, 1s later: an object with finalizers goes when the last is removed`,
		},
		{
			"another of that name",
			[]string{`ann delete configmaps shop/c uid=1`, `eve delete configmaps shop/c uid=2`},
			history.Target{UID: "1", Kind: configMap, Namespace: "shop", Name: "c"},
			`ConfigMap shop/c: gone
  deleted by ann`,
		},
		{
			"evicted",
			[]string{`ann create pods:eviction shop/web-1 code=201`},
			history.Target{Kind: pod, Namespace: "shop", Name: "web-1"},
			`Pod shop/web-1: gone
  evicted by ann`,
		},
		{
			"a cycle of owners ends",
			[]string{
				collector + ` delete configmaps shop/a reason={"decision":"delete","owners":[{"kind":"ConfigMap","namespace":"shop","name":"b","standing":"dangling"}]}`,
				collector + ` delete configmaps shop/b reason={"decision":"delete","owners":[{"kind":"ConfigMap","namespace":"shop","name":"a","standing":"dangling"}]}`,
			},
			history.Target{Kind: configMap, Namespace: "shop", Name: "a"},
			`ConfigMap shop/a: gone
  deleted by the garbage collector, system:coppice:collector: delete
    because the reference to ConfigMap b is dangling
    ConfigMap shop/b: gone
      deleted by the garbage collector, system:coppice:collector: delete
        because the reference to ConfigMap a is dangling`,
		},
		{"not in the log", nil, history.Target{UID: "nobody"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			x, ok := logOf(t, test.log...).Explain(test.target)
			got := ""
			if ok {
				got = ageless(x.Text(noon()))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// ageless removes the ages from a text: "deleted by ann, 3s ago (2026-…)".
func ageless(text string) string {
	var lines []string
	for line := range strings.Lines(strings.TrimSuffix(text, "\n")) {
		line = strings.TrimSuffix(line, "\n")
		if at := strings.LastIndex(line, ", "); at > 0 && strings.HasSuffix(line, "Z)") {
			line = line[:at]
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// TestActionsWithoutAuditLog: the actions of a collector are known without an audit log, each object by its UID.
func TestActionsWithoutAuditLog(t *testing.T) {
	l := history.NewLog(func(k ownership.Kind) (schema.GroupResource, bool) {
		return schema.GroupResource{Group: k.Group, Resource: "many-" + k.Kind}, true
	})
	record := func(second int, name string, uid report.UID, action report.Action, answer report.Answer, owners ...report.Owner) report.Record {
		return report.Record{
			Time: noon().Add(time.Duration(second) * time.Second), Action: action, Answer: answer, Decision: "decided", Policy: "Background", Owners: owners,
			Object: report.RecordedObject{Kind: "ConfigMap", Namespace: "shop", Name: name, UID: uid},
		}
	}
	owner := report.Owner{Kind: "Deployment.apps", Namespace: "shop", Name: "web", UID: "d", Standing: "dangling", Evidence: "live read"}
	l.AddRecords([]report.Record{
		record(1, "c", "1", report.ActionDelete, report.AnswerDone, owner),
		record(2, "c", "2", report.ActionDelete, report.AnswerDone),
		record(3, "c", "2", report.ActionRemoveFinalizer, report.AnswerDone),
		record(4, "kept", "3", report.ActionDetach, report.AnswerDone),
		record(5, "observed", "4", report.ActionDelete, report.AnswerNone),
		record(6, "doubtful", "5", report.ActionDelete, report.AnswerUnknown),
	})
	for _, test := range []struct {
		uid  ownership.UID
		want string
	}{
		{"1", "ConfigMap shop/c: gone\n  deleted by the garbage collector, policy Background: decided\n    because the reference to Deployment.apps web is dangling, by a live read"},
		{"2", "ConfigMap shop/c: gone\n  deleted by the garbage collector, policy Background: decided"},
		{"3", ""},
		{"4", ""},
		{"5", "ConfigMap shop/doubtful: gone\n  perhaps: deleted by the garbage collector, policy Background: decided\n    because the server did not answer: "},
	} {
		got := ""
		if x, ok := l.Explain(history.Target{UID: test.uid}); ok {
			got = ageless(x.Text(noon()))
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.uid, diff)
		}
	}
	if x, ok := l.Explain(history.Target{Kind: configMap, Namespace: "shop", Name: "c"}); !ok || x.Object.UID != "2" {
		t.Errorf("by name: %+v", x)
	}
}

// A file that is not an audit log is not accepted as an empty one.
func TestWhatIsNoEvent(t *testing.T) {
	for _, line := range []string{"", "some text", `{"verb":"delete"}`, `{"apiVersion":"audit.k8s.io/v1beta1","verb":"delete"}`} {
		if err := history.NewLog(nil).AddLine([]byte(line)); err == nil {
			t.Errorf("%q was taken for an event", line)
		}
	}
}

// Users choose the labels of objects and the bodies of requests: only the verb of the event itself says that a line is about
// a read. Such a line is not decoded further.
func TestVerbsInsideOfAnEventDecideNothing(t *testing.T) {
	const (
		deleted = `"apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","requestURI":"/x","verb":"delete","user":{"username":"eve"},` +
			`"objectRef":{"resource":"configmaps","namespace":"shop","name":"c"},"responseStatus":{"code":200},"stageTimestamp":"2026-03-01T12:00:00Z"`
		labelled = `"responseObject":{"metadata":{"uid":"u","labels":{"verb":"get"},"list":[{"verb":"watch"},"verb"]}}`
	)
	for name, line := range map[string]string{"after the verb": "{" + deleted + "," + labelled + "}", "before it": "{" + labelled + "," + deleted + "}"} {
		l := history.NewLog(nil)
		if err := l.AddLine([]byte(line)); err != nil {
			t.Fatal(err)
		}
		x, ok := l.Explain(history.Target{Kind: configMap, Namespace: "shop", Name: "c"})
		if !ok || !strings.Contains(x.Text(noon()), "deleted by eve") || x.Object.UID != "u" {
			t.Errorf("%s: %+v", name, x)
		}
	}
	for _, verb := range []string{"get", "list", "watch"} {
		if err := history.NewLog(nil).AddLine([]byte(`{"kind":"Event","annotations":{"verb":["a",{}]},"verb":"` + verb + `","objectRef":{"resource":7`)); err != nil {
			t.Errorf("%s: more than the verb is decoded: %v", verb, err)
		}
	}
	if err := history.NewLog(nil).AddLine([]byte(`{"labels":{"verb":"get"}}`)); err == nil {
		t.Error("a line without a verb was taken for a read")
	}
}
