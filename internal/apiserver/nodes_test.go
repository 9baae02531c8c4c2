package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// nodeCluster is a server with two nodes and a namespace with a pod on each node, an unbound pod, and
// secrets to which the pods refer.
type nodeCluster struct {
	*server
	admin     kubernetes.Interface
	namespace string
	own, far  string // the nodes
	pods      map[string]*corev1.Pod
	config    *rest.Config // of the node own
}

func newNodeCluster(t *testing.T) *nodeCluster {
	t.Helper()
	s := sharedServer(t)
	admin, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	w := &nodeCluster{server: s, admin: admin, namespace: s.namespace(t), pods: map[string]*corev1.Pod{}}
	w.own, w.far = w.namespace+"-own", w.namespace+"-far"
	for _, name := range []string{w.own, w.far} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"node-restriction.kubernetes.io/tenant": "a"}}}
		if _, err := admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}
	if _, err := admin.CoreV1().ConfigMaps(w.namespace).Create(t.Context(), settings, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, node := range map[string]string{"own": w.own, "far": w.far, "waiting": ""} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "of-" + name}}
		if _, err := admin.CoreV1().ServiceAccounts(w.namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "of-" + name}, StringData: map[string]string{"key": "secret-content"}}
		if _, err := admin.CoreV1().Secrets(w.namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "c", Image: "i", EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}}},
			Volumes: []corev1.Volume{
				{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "of-" + name}}},
				{Name: "t", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "vault"}},
					{PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/a", KeyType: "ED25519", KeyPath: "key"}},
				}}}},
			},
			ServiceAccountName: "of-" + name,
		}}
		if w.pods[name], err = admin.CoreV1().Pods(w.namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.config = w.as(t, func(a *auth.Authority) (auth.Pair, error) { return a.Node(w.own) })
	return w
}

// as returns a client of the server's port with a certificate.
func (s *server) as(t *testing.T, issue func(*auth.Authority) (auth.Pair, error)) *rest.Config {
	t.Helper()
	pair, err := issue(s.authority)
	if err != nil {
		t.Fatal(err)
	}
	return &rest.Config{Host: s.url, TLSClientConfig: rest.TLSClientConfig{CAData: s.authority.Certificate(), CertData: pair.Certificate, KeyData: pair.Key}}
}

func (w *nodeCluster) pod(name string, more ...string) string {
	return strings.Join(append([]string{"/api/v1/namespaces/" + w.namespace + "/pods/" + name}, more...), "/")
}

func (w *nodeCluster) tokens(account string) string {
	return "/api/v1/namespaces/" + w.namespace + "/serviceaccounts/" + account + "/token"
}

// tokenOf returns a request for a token bound to a pod.
func (w *nodeCluster) tokenOf(pod, audience string) string {
	return fmt.Sprintf(`{"spec":{"audiences":[%q],"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":%q,"uid":%q}}}`, audience, pod, w.pods[pod].UID)
}

func (w *nodeCluster) deletion(pod string) string {
	return fmt.Sprintf(`{"gracePeriodSeconds":0,"preconditions":{"uid":%q}}`, w.pods[pod].UID)
}

const (
	jsonType   = "application/json"
	mergeType  = string(types.MergePatchType)
	nodesPath  = "/api/v1/nodes"
	leasesPath = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	// requestsPath is the path of certificate requests.
	requestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
)

func create(path, body string) forged { return forged{http.MethodPost, path, "", jsonType, body} }
func get(path string) forged          { return forged{http.MethodGet, path, jsonType, "", ""} }
func merge(path, body string) forged  { return forged{http.MethodPatch, path, "", mergeType, body} }
func remove(path, body string) forged { return forged{http.MethodDelete, path, "", jsonType, body} }

func anEvent(kind, namespace, name string) string {
	return fmt.Sprintf(`{"metadata":{"generateName":"e"},"involvedObject":{"apiVersion":"v1","kind":%q,"namespace":%q,"name":%q},"reason":"Forged"}`, kind, namespace, name)
}

// forgedOfNode returns requests that no node agent sends, and a part of the error for each.
func (w *nodeCluster) forgedOfNode() map[string]struct {
	forged
	want string
} {
	own, far := nodesPath+"/"+w.own, nodesPath+"/"+w.far
	lease := func(name, more string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q%s},"spec":{"holderIdentity":"x"}}`, name, more)
	}
	owner := func(kind, more string) string {
		return fmt.Sprintf(`"ownerReferences":[{"apiVersion":"v1","kind":%q,"name":%q,"uid":"u"%s}]`, kind, w.own, more)
	}
	secrets := "/api/v1/namespaces/" + w.namespace + "/secrets"
	events := "/api/v1/namespaces/" + w.namespace + "/events"
	return map[string]struct {
		forged
		want string
	}{
		"read another node":                   {get(far), "can access nodes " + w.own + " only"},
		"list nodes":                          {get(nodesPath), "select by metadata.name=" + w.own},
		"watch nodes":                         {get(nodesPath + "?watch=true"), "select by metadata.name=" + w.own},
		"list another node":                   {get(nodesPath + "?fieldSelector=metadata.name%3D" + w.far), "select by metadata.name"},
		"register another node":               {create(nodesPath, `{"metadata":{"name":"`+w.far+`-2"}}`), "cannot write objects of node "},
		"register with a taint":               {create(nodesPath, `{"metadata":{"name":"`+w.own+`"},"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`), "cannot set taints"},
		"register with an owner":              {create(nodesPath, `{"metadata":{"name":"`+w.own+`",`+owner("Namespace", "")+`}}`), "cannot set owner references"},
		"register with a finalizer":           {create(nodesPath, `{"metadata":{"name":"`+w.own+`","finalizers":["a/b"]}}`), "cannot set finalizers"},
		"register as another's":               {create(nodesPath, `{"metadata":{"name":"`+w.own+`","labels":{"node-restriction.kubernetes.io/tenant":"b"}}}`), "cannot set label node-restriction.kubernetes.io/tenant"},
		"register with a role":                {create(nodesPath, `{"metadata":{"name":"`+w.own+`","labels":{"node-role.kubernetes.io/control-plane":""}}}`), "cannot set label node-role"},
		"delete its node":                     {remove(own, ""), "cannot"},
		"delete another node":                 {remove(far, ""), "cannot"},
		"delete all nodes":                    {remove(nodesPath, ""), "nodes"},
		"set an owner of its node":            {merge(own, `{"metadata":{`+owner("Namespace", "")+`}}`), "cannot change owner references"},
		"set a finalizer of its node":         {merge(own, `{"metadata":{"finalizers":["a/b"]}}`), "cannot change finalizers"},
		"taint its node":                      {merge(own, `{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`), "cannot change taints"},
		"uncordon its node":                   {merge(own, `{"spec":{"unschedulable":true}}`), "cannot change the spec"},
		"set the label of a tenant":           {merge(own, `{"metadata":{"labels":{"node-restriction.kubernetes.io/tenant":"b"}}}`), "cannot set label node-restriction"},
		"remove the label of a tenant":        {merge(own, `{"metadata":{"labels":{"node-restriction.kubernetes.io/tenant":null}}}`), "cannot remove label node-restriction"},
		"set the label of a role":             {merge(own, `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`), "cannot set label node-role"},
		"patch another node":                  {merge(far, `{"metadata":{"labels":{"a":"b"}}}`), "can access nodes " + w.own + " only"},
		"report about another node":           {merge(far+"/status", `{"status":{"phase":"Running"}}`), "can access nodes " + w.own + " only"},
		"set the port of another node":        {merge(far+"/status", `{"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":10250}}}}`), "can access nodes " + w.own + " only"},
		"set the address of another node":     {merge(far+"/status", `{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.7"}]}}`), "can access nodes " + w.own + " only"},
		"annotate by a status":                {merge(own+"/status", `{"metadata":{"annotations":{"a":"b"}}}`), "cannot change labels or annotations"},
		"read another lease":                  {get(leasesPath + "/" + w.far), "can access leases " + w.own + " only"},
		"list leases":                         {get(leasesPath), "select by metadata.name"},
		"renew another's lease":               {create(leasesPath, lease(w.far, "")), "cannot write objects of node "},
		"a lease in another namespace":        {create("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", lease(w.own, "")), "in namespace kube-node-lease only"},
		"a lease that keeps its node":         {create(leasesPath, lease(w.own, ","+owner("Node", `,"blockOwnerDeletion":true`))), "only owner of its lease must be its node"},
		"a lease owned by something":          {create(leasesPath, lease(w.own, ","+owner("Namespace", ""))), "only owner of its lease must be its node"},
		"a lease with a finalizer":            {create(leasesPath, lease(w.own, `,"finalizers":["a/b"]`)), "cannot set finalizers"},
		"read the leader election lease":      {get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/coppice-controllers"), "in namespace kube-node-lease only"},
		"delete a lease":                      {remove(leasesPath+"/"+w.own, ""), "cannot"},
		"read another's pod":                  {get(w.pod("far")), "is not bound to node " + w.own},
		"read an unbound pod":                 {get(w.pod("waiting")), "is not bound to node " + w.own},
		"read a log":                          {get(w.pod("own", "log")), "cannot"},
		"list pods":                           {get("/api/v1/pods"), "select by spec.nodeName=" + w.own},
		"list pods of a namespace":            {get("/api/v1/namespaces/" + w.namespace + "/pods"), "select by spec.nodeName"},
		"list another's pods":                 {get("/api/v1/pods?fieldSelector=spec.nodeName%3D" + w.far), "select by spec.nodeName"},
		"list all but another's pods":         {get("/api/v1/pods?fieldSelector=spec.nodeName!%3D" + w.own), "select by spec.nodeName"},
		"select twice":                        {get("/api/v1/pods?fieldSelector=spec.nodeName%3D" + w.own + "&fieldSelector="), "select by spec.nodeName"},
		"watch pods":                          {get("/api/v1/pods?watch=true"), "select by spec.nodeName"},
		"watch pods by the deprecated path":   {get("/api/v1/watch/pods"), "select by spec.nodeName"},
		"watch a pod by the deprecated path":  {get("/api/v1/watch/namespaces/" + w.namespace + "/pods/far"), "select by spec.nodeName"},
		"create a pod":                        {create("/api/v1/namespaces/"+w.namespace+"/pods", `{"metadata":{"name":"p"},"spec":{"nodeName":"`+w.own+`","containers":[{"name":"c","image":"i"}]}}`), "cannot"},
		"bind an unbound pod":                 {create(w.pod("waiting", "binding"), `{"target":{"kind":"Node","name":"`+w.own+`"}}`), "cannot"},
		"evict a pod":                         {create(w.pod("own", "eviction"), `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"own"}}`), "cannot"},
		"label its pod":                       {merge(w.pod("own"), `{"metadata":{"labels":{"a":"b"}}}`), "cannot"},
		"change its pod":                      {merge(w.pod("own"), `{"spec":{"containers":[{"name":"c","image":"other"}]}}`), "cannot"},
		"annotate its pod by a status":        {merge(w.pod("own", "status"), `{"metadata":{"annotations":{"a":"b"}}}`), "cannot change labels or annotations"},
		"report about another's pod":          {merge(w.pod("far", "status"), `{"status":{"phase":"Failed"}}`), "is not bound to node"},
		"guess fields of another's pod":       {forged{http.MethodPatch, w.pod("far", "status"), "", string(types.JSONPatchType), `[{"op":"test","path":"/spec/nodeName","value":"x"}]`}, "is not bound to node"},
		"delete another's pod":                {remove(w.pod("far"), w.deletion("far")), "is not bound to node"},
		"delete an unbound pod":               {remove(w.pod("waiting"), w.deletion("waiting")), "is not bound to node"},
		"delete its pod without precondition": {remove(w.pod("own"), ""), "precondition uid"},
		"delete its pods":                     {remove("/api/v1/namespaces/"+w.namespace+"/pods?fieldSelector=spec.nodeName%3D"+w.own, ""), "pods"},
		"read another's secret":               {get(secrets + "/of-far"), "no pod that is bound to node " + w.own + " refers to secrets of-far"},
		"list secrets":                        {get(secrets), "cannot list"},
		"read what nobody refers to":          {get("/api/v1/namespaces/default/configmaps/settings"), "refers to configmaps settings"},
		"a token of another's account":        {create(w.tokens("of-far"), w.tokenOf("far", "vault")), "no pod that is bound to node " + w.own + " has the service account of-far"},
		"a token that is bound to nothing":    {create(w.tokens("of-own"), `{"spec":{"audiences":["vault"]}}`), "only that are bound to a pod"},
		"a token that is bound to a secret":   {create(w.tokens("of-own"), `{"spec":{"audiences":["vault"],"boundObjectRef":{"apiVersion":"v1","kind":"Secret","name":"of-own"}}}`), "only that are bound to a pod"},
		"a token for another's pod":           {create(w.tokens("of-own"), w.tokenOf("far", "vault")), "no pod far"},
		"a token for an earlier pod":          {create(w.tokens("of-own"), strings.Replace(w.tokenOf("own", "vault"), string(w.pods["own"].UID), "u", 1)), "no pod own with uid u"},
		"a token for a pod of any uid":        {create(w.tokens("of-own"), strings.Replace(w.tokenOf("own", "vault"), string(w.pods["own"].UID), "", 1)), "must name the uid"},
		"a token for another audience":        {create(w.tokens("of-own"), w.tokenOf("own", "bank")), `for [\"bank\"] is bound to node`},
		"a token for the API server":          {create(w.tokens("of-own"), strings.Replace(w.tokenOf("own", "vault"), `"audiences":["vault"],`, "", 1)), "svc.cluster.local"},
		"read a service account":              {get("/api/v1/namespaces/" + w.namespace + "/serviceaccounts/of-far"), "no pod that is bound"},
		"list all services":                   {get("/api/v1/services"), "services of one namespace only"},
		"list another namespace's services":   {get("/api/v1/namespaces/kube-system/services"), "no pod that is bound to node " + w.own + " is in namespace kube-system"},
		"watch services":                      {get("/api/v1/namespaces/" + w.namespace + "/services?watch=true"), "cannot watch"},
		"an event about another's pod":        {create(events, anEvent("Pod", w.namespace, "far")), "is not bound to its node"},
		"an event about a secret":             {create(events, anEvent("Secret", w.namespace, "of-own")), "can create Events about its node and its pods only"},
		"an event about another node":         {create("/api/v1/namespaces/default/events", anEvent("Node", "", w.far)), "can create Events about its node and its pods only"},
		"an event with an owner":              {create(events, strings.Replace(anEvent("Pod", w.namespace, "own"), `"e"`, `"e",`+owner("Node", ""), 1)), "cannot set owner references"},
		"read events":                         {get(events), "cannot list"},
		"request another's certificate":       {create(requestsPath, nodeRequest("kubernetes.io/kube-apiserver-client-kubelet", w.far)), "can request certificates for system:node:" + w.own + " only"},
		"request a user's certificate":        {create(requestsPath, nodeRequest("kubernetes.io/kube-apiserver-client", w.own)), "can request certificates of kubelets only"},
		"list requests":                       {get(requestsPath), "must select by metadata.name"},
		"delete requests":                     {remove(requestsPath, ""), "cannot deletecollection"},
		"make itself an administrator":        {merge("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node", `{"rules":[]}`), "cannot patch"},
		"bind itself":                         {create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"x"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}}`), "cannot create"},
		"read metrics":                        {get("/metrics"), "cannot get path"},
	}
}

// Requests with a node's credential that no agent sends are refused with a reason.
func TestForgedRequestsOfANode(t *testing.T) {
	w := newNodeCluster(t)
	for name, f := range w.forgedOfNode() {
		code, answer := forge(t, w.config, f.forged)
		if code != http.StatusForbidden || !strings.Contains(answer, f.want) {
			t.Errorf("%s: %d %s, want a refusal that says %q", name, code, answer, f.want)
		}
		if strings.Contains(answer, secretContent) {
			t.Errorf("%s: the answer has the content of a secret", name)
		}
	}
	for name, pod := range w.pods {
		if now, err := w.admin.CoreV1().Pods(w.namespace).Get(t.Context(), name, metav1.GetOptions{}); err != nil || now.ResourceVersion != pod.ResourceVersion {
			t.Errorf("pod %s was changed: %v", name, err)
		}
	}
}

// A node stays restricted whatever roles are bound to it.
func TestRolesDoNotLiftTheRestrictionOfANode(t *testing.T) {
	w := newNodeCluster(t)
	defer w.bind(t, "cluster-admin", bootstrappolicy.NodeUserPrefix+w.own)()
	for name, f := range w.forgedOfNode() {
		if f.path == "/metrics" {
			continue // a path that is not a resource: only roles decide
		}
		if code, answer := forge(t, w.config, f.forged); code != http.StatusForbidden || !strings.Contains(answer, "is restricted: ") {
			t.Errorf("%s: %d %s", name, code, answer)
		}
	}
}

// bind binds a ClusterRole to a user, and returns a function that undoes it.
func (w *nodeCluster) bind(t *testing.T, role, user string) (undo func()) {
	t.Helper()
	// Reviews about a restricted user do not show when the binding is effective. Reviews about the probe do.
	probe := "probe-" + w.namespace
	subject := func(name string) map[string]any {
		return map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"name": w.namespace},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
		"subjects": []any{subject(user), subject(probe)},
	})
	if err != nil {
		t.Fatal(err)
	}
	const bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	if code, answer := forge(t, w.Client(), create(bindings, string(body))); code != http.StatusCreated {
		t.Fatalf("%d %s", code, answer)
	}
	review := create("/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"spec":{"user":"`+probe+`","resourceAttributes":{"verb":"list","resource":"secrets"}}}`)
	eventually.Agrees(t, func() string {
		code, answer := forge(t, w.Client(), review)
		if code == http.StatusCreated && strings.Contains(answer, `"allowed":true`) {
			return ""
		}
		return answer
	})
	return func() { forge(t, w.Client(), remove(bindings+"/"+w.namespace, "")) }
}

// A user that has the name of a node or the group of nodes, but not both, may do nothing.
func TestHalfANode(t *testing.T) {
	w := newNodeCluster(t)
	for name, u := range map[string]rest.ImpersonationConfig{
		"not in the group": {UserName: bootstrappolicy.NodeUserPrefix + w.own, Groups: []string{"system:authenticated"}},
		"not by name":      {UserName: "somebody", Groups: []string{"system:nodes"}},
		"without a name":   {UserName: bootstrappolicy.NodeUserPrefix, Groups: []string{"system:nodes"}},
	} {
		c := w.Client()
		c.Impersonate = u
		if code, answer := forge(t, c, get(nodesPath+"/"+w.own)); code != http.StatusForbidden {
			t.Errorf("%s: %d %s", name, code, answer)
		}
	}
}

// The requests of a node agent are admitted.
func TestTheNodesOwnRequests(t *testing.T) {
	w := newNodeCluster(t)
	own := nodesPath + "/" + w.own
	node, err := w.admin.CoreV1().Nodes().Get(t.Context(), w.own, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease := fmt.Sprintf(`{"metadata":{"name":%q,"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":%q,"uid":%q}]},"spec":{"holderIdentity":"x"}}`, w.own, w.own, node.UID)
	byName, byNode := "fieldSelector=metadata.name%3D"+w.own, "fieldSelector=spec.nodeName%3D"+w.own
	for _, step := range []struct {
		name string
		forged
		code int
	}{
		{"register what is there", create(nodesPath, `{"metadata":{"name":"`+w.own+`"}}`), http.StatusConflict},
		{"read its node", get(own), http.StatusOK},
		{"watch its node", get(nodesPath + "?watch=true&timeoutSeconds=1&" + byName), http.StatusOK},
		{"say what it is", merge(own, `{"metadata":{"labels":{"node.kubernetes.io/instance-type":"m","mine":"a"}}}`), http.StatusOK},
		{"report", merge(own+"/status", `{"metadata":{"uid":"`+string(node.UID)+`"},"status":{"nodeInfo":{"osImage":"o"}}}`), http.StatusOK},
		{"say where it serves logs", merge(own+"/status", `{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":10250}}}}`), http.StatusOK},
		{"begin a lease", create(leasesPath, lease), http.StatusCreated},
		{"renew it", merge(leasesPath+"/"+w.own, `{"spec":{"renewTime":"2026-01-01T00:00:00.000000Z"}}`), http.StatusOK},
		{"list its pods", get("/api/v1/pods?" + byNode), http.StatusOK},
		{"watch its pods", get("/api/v1/pods?watch=true&timeoutSeconds=1&" + byNode), http.StatusOK},
		{"read its pod", get(w.pod("own")), http.StatusOK},
		{"report about its pod", merge(w.pod("own", "status"), `{"metadata":{"uid":"`+string(w.pods["own"].UID)+`"},"status":{"phase":"Running"}}`), http.StatusOK},
		{"read a secret of its pod", get("/api/v1/namespaces/" + w.namespace + "/secrets/of-own"), http.StatusOK},
		{"read a config map of its pod", get("/api/v1/namespaces/" + w.namespace + "/configmaps/settings"), http.StatusOK},
		{"request a token of its pod", create(w.tokens("of-own"), w.tokenOf("own", "vault")), http.StatusCreated},
		{"find the services of its pod", get("/api/v1/namespaces/" + w.namespace + "/services"), http.StatusOK},
		{"tell of its pod", create("/api/v1/namespaces/"+w.namespace+"/events", anEvent("Pod", w.namespace, "own")), http.StatusCreated},
		{"tell of itself", create("/api/v1/namespaces/default/events", anEvent("Node", "", w.own)), http.StatusCreated},
		{"ask what it may do", create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`), http.StatusCreated},
		{"find out what is", get("/apis"), http.StatusOK},
		{"request a certificate", create(requestsPath, nodeRequest("kubernetes.io/kube-apiserver-client-kubelet", w.own)), http.StatusCreated},
		{"wait for it", get(requestsPath + "?fieldSelector=metadata.name%3D" + w.own), http.StatusOK},
		{"fetch it", get(requestsPath + "/" + w.own), http.StatusOK},
		{"remove its pod", remove(w.pod("own"), w.deletion("own")), http.StatusOK},
	} {
		if code, answer := forge(t, w.config, step.forged); code != step.code {
			t.Errorf("%s: %d %s", step.name, code, answer)
		}
	}
	if _, err := w.admin.CoreV1().Pods(w.namespace).Get(t.Context(), "own", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pod is there: %v", err)
	}
}

// A node counts repetitions of its own Events. It can neither change nor read the Events of others.
func TestNodeCountsItsEvents(t *testing.T) {
	w := newNodeCluster(t)
	events := "/api/v1/namespaces/" + w.namespace + "/events"
	event := func(name, pod, host string) *corev1.Event {
		return &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Source: corev1.EventSource{Component: "kubelet", Host: host},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: w.namespace, Name: pod}, Reason: "BackOff", Message: "secret",
		}
	}
	for _, e := range []*corev1.Event{event("mine", "own", w.own), event("theirs", "own", "else"), event("far", "far", w.own)} {
		if _, err := w.admin.CoreV1().Events(w.namespace).Create(t.Context(), e, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	strategic := string(types.StrategicMergePatchType)
	for name, test := range map[string]struct {
		event, form, patch string
		want               int
	}{
		"counts":                   {"mine", strategic, `{"count":2,"lastTimestamp":"2026-01-02T03:04:05Z","message":"again"}`, http.StatusOK},
		"tests what it says":       {"mine", string(types.JSONPatchType), `[{"op":"test","path":"/message","value":"x"}]`, http.StatusForbidden},
		"merges":                   {"mine", mergeType, `{"count":3}`, http.StatusForbidden},
		"changes what it is about": {"mine", strategic, `{"involvedObject":{"name":"far"}}`, http.StatusForbidden},
		"changes its reason":       {"mine", strategic, `{"reason":"Other"}`, http.StatusForbidden},
		"keeps it":                 {"mine", strategic, `{"metadata":{"finalizers":["a/b"]}}`, http.StatusForbidden},
		"labels it":                {"mine", strategic, `{"metadata":{"labels":{"a":"b"}}}`, http.StatusForbidden},
		"counts another's":         {"theirs", strategic, `{"count":2}`, http.StatusForbidden},
		"reads another's":          {"theirs", strategic, `{}`, http.StatusForbidden},
		"about another's pod":      {"far", strategic, `{"count":2}`, http.StatusForbidden},
	} {
		code, answer := forge(t, w.config, forged{http.MethodPatch, events + "/" + test.event, "", test.form, test.patch})
		if code != test.want || code != http.StatusOK && strings.Contains(answer, "secret") {
			t.Errorf("%s: %d %s, want %d", name, code, answer, test.want)
		}
	}
}

// A review about a node, or by it, has the answer that the node's request gets.
func TestReviewsAboutANode(t *testing.T) {
	w := newNodeCluster(t)
	// A role that allows everything does not change what a node may do.
	defer w.bind(t, "cluster-admin", bootstrappolicy.NodeUserPrefix+w.own)()
	node, err := kubernetes.NewForConfig(w.config)
	if err != nil {
		t.Fatal(err)
	}
	named := func(verb, resource, name string) authorizationv1.ResourceAttributes {
		what, subresource, _ := strings.Cut(resource, "/")
		return authorizationv1.ResourceAttributes{Verb: verb, Resource: what, Subresource: subresource, Namespace: w.namespace, Name: name}
	}
	lease := func(verb, namespace, name string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{Verb: verb, Group: "coordination.k8s.io", Resource: "leases", Namespace: namespace, Name: name}
	}
	podsOf := func(selector *authorizationv1.FieldSelectorAttributes) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", FieldSelector: selector}
	}
	in := func(node string) *authorizationv1.FieldSelectorAttributes {
		return &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{{Key: "spec.nodeName", Operator: metav1.FieldSelectorOpIn, Values: []string{node}}}}
	}
	for _, test := range []struct {
		what  string
		asked authorizationv1.ResourceAttributes
		want  bool
	}{
		{"its node", authorizationv1.ResourceAttributes{Verb: "patch", Resource: "nodes", Subresource: "status", Name: w.own}, true},
		{"another node", authorizationv1.ResourceAttributes{Verb: "patch", Resource: "nodes", Subresource: "status", Name: w.far}, false},
		{"deleting its node", authorizationv1.ResourceAttributes{Verb: "delete", Resource: "nodes", Name: w.own}, false},
		{"its lease", lease("update", "kube-node-lease", w.own), true},
		{"another lease", lease("update", "kube-node-lease", w.far), false},
		{"a lease elsewhere", lease("update", "kube-system", w.own), false},
		{"its pod", named("get", "pods", "own"), true},
		{"a pod of another node", named("get", "pods", "far"), false},
		{"a pod of no node", named("delete", "pods", "waiting"), false},
		{"a pod that does not exist", named("get", "pods", "absent"), false},
		{"any pod", named("get", "pods", ""), false},
		{"exec into its pod", named("create", "pods/exec", "own"), false},
		{"the status of its pod", named("patch", "pods/status", "own"), true},
		{"the status of another pod", named("patch", "pods/status", "far"), false},
		{"a secret of its pod", named("get", "secrets", "of-own"), true},
		{"a secret of another pod", named("get", "secrets", "of-far"), false},
		{"secrets", named("list", "secrets", ""), false},
		{"a configmap of its pod", named("get", "configmaps", "settings"), true},
		{"a token for its pod", named("create", "serviceaccounts/token", "of-own"), true},
		{"a token for another pod", named("create", "serviceaccounts/token", "of-far"), false},
		{"its pods", podsOf(in(w.own)), true},
		{"its pods, as text", podsOf(&authorizationv1.FieldSelectorAttributes{RawSelector: "spec.nodeName=" + w.own}), true},
		{"pods of another node", podsOf(in(w.far)), false},
		{"all pods", podsOf(nil), false},
		{"a certificate for itself, approved by a controller", authorizationv1.ResourceAttributes{
			Verb: "create", Group: "certificates.k8s.io", Resource: "certificatesigningrequests", Subresource: "selfnodeclient",
		}, true},
		{"approving certificates", authorizationv1.ResourceAttributes{
			Verb: "update", Group: "certificates.k8s.io", Resource: "certificatesigningrequests", Subresource: "approval",
		}, false},
		{"everything", authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"}, false},
	} {
		spec := authorizationv1.SubjectAccessReviewSpec{User: bootstrappolicy.NodeUserPrefix + w.own, Groups: []string{"system:nodes", "system:authenticated"}, ResourceAttributes: &test.asked}
		other, err := w.admin.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil || other.Status.Allowed != test.want || other.Status.Denied == test.want {
			t.Errorf("%s: %+v %v", test.what, other.Status, err)
		}
		self, err := node.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &test.asked},
		}, metav1.CreateOptions{})
		if err != nil || self.Status.Allowed != test.want {
			t.Errorf("%s, of itself: %+v %v", test.what, self.Status, err)
		}
		if test.asked.Namespace == "" {
			continue
		}
		local, err := w.admin.AuthorizationV1().LocalSubjectAccessReviews(test.asked.Namespace).Create(t.Context(), &authorizationv1.LocalSubjectAccessReview{
			ObjectMeta: metav1.ObjectMeta{Namespace: test.asked.Namespace}, Spec: spec,
		}, metav1.CreateOptions{})
		if err != nil || local.Status.Allowed != test.want {
			t.Errorf("%s, locally: %+v %v", test.what, local.Status, err)
		}
	}
}
