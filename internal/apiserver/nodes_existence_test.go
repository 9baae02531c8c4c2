package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// unrelated is an object that has nothing to do with the node that asks: the path of its collection, its name and, if
// newNodeCluster does not make it, the object.
type unrelated struct{ collection, name, body string }

// absent is the name of an object that does not exist. It is as long as the name of the object.
func (u unrelated) absent() string { return u.name[:len(u.name)-1] + "x" }

func (w *nodeCluster) unrelated() []unrelated {
	in := "/api/v1/namespaces/" + w.namespace + "/"
	spec := `{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}`
	return []unrelated{
		{in + "pods", "far", ""},
		{in + "secrets", "of-far", ""},
		{in + "serviceaccounts", "of-far", ""},
		{in + "configmaps", "far", `{"metadata":{"name":"far"}}`},
		{in + "persistentvolumeclaims", "far", `{"metadata":{"name":"far"},"spec":` + spec + `}`},
		{in + "endpoints", "far", `{"metadata":{"name":"far"}}`},
		{in + "resourcequotas", "far", `{"metadata":{"name":"far"}}`},
		{"/api/v1/namespaces", w.namespace, ""},
		{nodesPath, w.far, ""},
		{leasesPath, w.far, `{"metadata":{"name":"` + w.far + `"}}`},
		{"/apis/coordination.k8s.io/v1/namespaces/" + w.namespace + "/leases", "far", `{"metadata":{"name":"far"}}`},
		{"/api/v1/persistentvolumes", w.far, `{"metadata":{"name":"` + w.far + `"},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/tmp"}}}`},
		{"/apis/apps/v1/namespaces/" + w.namespace + "/controllerrevisions", "far", `{"metadata":{"name":"far"},"data":{},"revision":1}`},
		{"/apis/resource.k8s.io/v1/resourceslices", w.far, `{"metadata":{"name":"` + w.far + `"},"spec":{"driver":"d.example.com","nodeName":"` + w.far + `","pool":{"name":"p","resourceSliceCount":1}}}`},
		{"/apis/resource.k8s.io/v1/namespaces/" + w.namespace + "/resourceclaims", "far", `{"metadata":{"name":"far"},"spec":{}}`},
		{"/apis/storage.k8s.io/v1/csinodes", w.far, `{"metadata":{"name":"` + w.far + `"},"spec":{"drivers":[]}}`},
		{"/apis/rbac.authorization.k8s.io/v1/clusterroles", "cluster-admin", ""},
	}
}

// requests returns requests for an object by name.
func (u unrelated) requests(name string) map[string]forged {
	path := u.collection + "/" + name
	return map[string]forged{
		"read":                 get(path),
		"read its metadata":    {http.MethodGet, path, asMetadata, "", ""},
		"read its status":      get(path + "/status"),
		"select":               get(u.collection + "?fieldSelector=metadata.name%3D" + name),
		"watch":                get(u.collection + "?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3D" + name),
		"watch, deprecated":    get(strings.Replace(path, "/v1/", "/v1/watch/", 1)),
		"patch":                merge(path, `{"metadata":{"labels":{"a":"b"}}}`),
		"patch its status":     merge(path+"/status", `{"status":{}}`),
		"apply":                {http.MethodPatch, path + "?fieldManager=x", "", "application/apply-patch+yaml", "{}"},
		"update":               {http.MethodPut, path, "", jsonType, `{"metadata":{"name":"` + name + `"}}`},
		"delete":               remove(path, ""),
		"delete, if its uid":   remove(path, `{"preconditions":{"uid":"u"}}`),
		"delete, in a dry run": remove(path+"?dryRun=All", ""),
		"logs":                 get(path + "/log"),
		"exec":                 create(path+"/exec?command=a", ""),
		"proxy":                get(path + "/proxy/"),
		"evict":                create(path+"/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"`+name+`"}}`),
		"bind":                 create(path+"/binding", `{"metadata":{"name":"`+name+`"},"target":{"name":"n"}}`),
		"a token":              create(path+"/token", `{"spec":{"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"own","uid":"u"}}}`),
	}
}

// The answer to a node about an object that has nothing to do with it does not tell whether the object exists.
func TestNodesLearnOfNothingElse(t *testing.T) {
	w := newNodeCluster(t)
	for _, u := range w.unrelated() {
		if u.body != "" {
			if code, answer := forge(t, w.Client(), create(u.collection, u.body)); code != http.StatusCreated {
				t.Fatalf("%s: %d %s", u.collection, code, answer)
			}
		}
		absent, unnamed := u.requests(u.absent()), strings.NewReplacer(u.name, "NAME", u.absent(), "NAME")
		for name, request := range u.requests(u.name) {
			code, answer := forge(t, w.config, request)
			absentCode, absentAnswer := forge(t, w.config, absent[name])
			if code != http.StatusForbidden || absentCode != code || unnamed.Replace(answer) != unnamed.Replace(absentAnswer) {
				t.Errorf("%s %s: %d %s\nof an absent one: %d %s", name, u.collection, code, answer, absentCode, absentAnswer)
			}
		}
	}
	for _, namespace := range []string{w.server.namespace(t), "absent"} {
		if code, answer := forge(t, w.config, get("/api/v1/namespaces/"+namespace+"/services")); code != http.StatusForbidden {
			t.Errorf("the services of %s: %d %s", namespace, code, answer)
		}
	}
}

// An Event about a pod of another node is answered like one about a pod that does not exist, unless it has the UID.
func TestEventsOfANodeTellOfNoPod(t *testing.T) {
	w := newNodeCluster(t)
	for name, test := range map[string]struct {
		pod, uid string
		want     int
	}{
		"its pod":                       {"own", string(w.pods["own"].UID), http.StatusCreated},
		"a pod before its pod":          {"own", "u", http.StatusCreated},
		"its pod, without a uid":        {"own", "", http.StatusCreated},
		"another's":                     {"far", string(w.pods["far"].UID), http.StatusForbidden},
		"another's, with some uid":      {"far", "u", http.StatusCreated},
		"no pod, with some uid":         {"absent", "u", http.StatusCreated},
		"another's, without a uid":      {"far", "", http.StatusForbidden},
		"no pod, without a uid":         {"absent", "", http.StatusForbidden},
		"a pod without a node":          {"waiting", string(w.pods["waiting"].UID), http.StatusForbidden},
		"one without a node, some uid":  {"waiting", "u", http.StatusCreated},
		"one without a node, or a uid":  {"waiting", "", http.StatusForbidden},
		"another's, with its own uid's": {"far", string(w.pods["own"].UID), http.StatusCreated},
	} {
		event := fmt.Sprintf(`{"metadata":{"generateName":"e"},"involvedObject":{"kind":"Pod","namespace":%q,"name":%q,"uid":%q}}`, w.namespace, test.pod, test.uid)
		if code, answer := forge(t, w.config, create("/api/v1/namespaces/"+w.namespace+"/events", event)); code != test.want {
			t.Errorf("%s: %d %s, want %d", name, code, answer, test.want)
		}
	}
}
