package apiserver_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/rules/inuse"
)

const (
	asMetadata     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	asMetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	secretContent  = "c2VjcmV0LWNvbnRlbnQ=" // base64 of secret-content
)

// forged is a request with a component's credential that the component does not send.
type forged struct {
	method, path, accept, contentType, body string
}

// forge sends a request, and returns the status and the body of the response.
func forge(t testing.TB, config *rest.Config, f forged) (int, string) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), f.method, config.Host+f.path, bytes.NewReader([]byte(f.body)))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Accept": f.accept, "Content-Type": f.contentType} {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

// secret creates a Secret whose content must not be disclosed, and returns its path.
func (s *server) secret(t testing.TB, namespace, name string, finalizers ...string) (path string, created *object) {
	t.Helper()
	c := s.collection(t, gvk("", "v1", "Secret"), "secrets", namespace, map[string]any{"data": map[string]any{"key": secretContent}})
	return c.at(name), c.create(name, finalizers...)
}

// collectors returns the client configurations of a collector in the server's process, and of
// one in another process, with a certificate.
func (s *server) collectors(t *testing.T) map[string]*rest.Config {
	t.Helper()
	inside, err := s.Collector()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := s.authority.Component(bootstrappolicy.Collector)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*rest.Config{"inside": inside, "outside": {
		Host: s.url, TLSClientConfig: rest.TLSClientConfig{CAData: s.authority.Certificate(), CertData: pair.Certificate, KeyData: pair.Key},
	}}
}

// With the collector's credential, requests that the collector does not send are refused (R16).
func TestForgedRequestsOfTheCollector(t *testing.T) {
	s := sharedServer(t)
	for name, config := range s.collectors(t) {
		t.Run(name, func(t *testing.T) { forgeAsCollector(t, s, config) })
	}
}

func forgeAsCollector(t *testing.T, s *server, config *rest.Config) {
	t.Helper()
	namespace := s.namespace(t)
	path, secret := s.secret(t, namespace, "held", foreign, foreground)
	secrets := strings.TrimSuffix(path, "/held")
	conditions := `"uid":"` + string(secret.GetUID()) + `","resourceVersion":"` + secret.GetResourceVersion() + `"`
	patch := func(metadata string) forged {
		return forged{http.MethodPatch, path, "", string(types.MergePatchType), `{"metadata":{` + conditions + `,` + metadata + `}}`}
	}
	for name, f := range map[string]forged{
		"read a whole object":              {http.MethodGet, path, "application/json", "", ""},
		"read without saying how":          {http.MethodGet, path, "", "", ""},
		"read a table":                     {http.MethodGet, secrets, "application/json;as=Table;g=meta.k8s.io;v=v1", "", ""},
		"read a table of objects":          {http.MethodGet, secrets + "?includeObject=Object", "application/json;as=Table;g=meta.k8s.io;v=v1", "", ""},
		"read metadata of another group":   {http.MethodGet, path, "application/json;as=PartialObjectMetadata;g=meta;v=v1", "", ""},
		"list whole objects":               {http.MethodGet, secrets, "application/json", "", ""},
		"watch whole objects":              {http.MethodGet, secrets + "?watch=true&timeoutSeconds=1", "application/json", "", ""},
		"watch, deprecated path":           {http.MethodGet, "/api/v1/watch/namespaces/" + namespace + "/secrets?timeoutSeconds=1", "application/json", "", ""},
		"select by content":                {http.MethodGet, secrets + "?fieldSelector=type%3DOpaque", asMetadataList, "", ""},
		"read a log":                       {http.MethodGet, "/api/v1/namespaces/" + namespace + "/pods/p/log", asMetadata, "", ""},
		"read a status":                    {http.MethodGet, "/api/v1/namespaces/" + namespace + "/status", asMetadata, "", ""},
		"read a scale":                     {http.MethodGet, "/apis/apps/v1/namespaces/" + namespace + "/deployments/d/scale", asMetadata, "", ""},
		"read metrics":                     {http.MethodGet, "/metrics", "", "", ""},
		"create":                           {http.MethodPost, "/api/v1/namespaces/" + namespace + "/configmaps", "", "application/json", `{"metadata":{"name":"a"}}`},
		"create a token":                   {http.MethodPost, "/api/v1/namespaces/" + namespace + "/serviceaccounts/default/token", "", "application/json", `{}`},
		"update":                           {http.MethodPut, path, "", "application/json", `{"metadata":{"name":"held"}}`},
		"delete without preconditions":     {http.MethodDelete, path, "", "", ""},
		"delete on condition of the uid":   {http.MethodDelete, path, "", "application/json", `{"preconditions":{"uid":"` + string(secret.GetUID()) + `"}}`},
		"delete all":                       {http.MethodDelete, secrets, "", "", ""},
		"patch data":                       {http.MethodPatch, path, "", string(types.MergePatchType), `{"metadata":{` + conditions + `},"data":{"key":"eA=="}}`},
		"guess data":                       {http.MethodPatch, path, "", string(types.MergePatchType), `{"metadata":{` + conditions + `},"data":{"key":"` + secretContent + `"}}`},
		"guess data by a test":             {http.MethodPatch, path, "", string(types.JSONPatchType), `[{"op":"test","path":"/data/key","value":"` + secretContent + `"}]`},
		"guess data by an apply":           {http.MethodPatch, path + "?fieldManager=x", "", string(types.ApplyPatchType), `{"apiVersion":"v1","kind":"Secret","data":{"key":"` + secretContent + `"}}`},
		"guess data, strategically":        {http.MethodPatch, path, "", string(types.StrategicMergePatchType), `{"metadata":{` + conditions + `},"data":{"key":"` + secretContent + `"}}`},
		"patch metadata twice":             {http.MethodPatch, path, "", string(types.MergePatchType), `{"metadata":{},"metadata":{"labels":{"a":"b"}}}`},
		"patch labels":                     patch(`"labels":{"a":"b"}`),
		"patch without preconditions":      {http.MethodPatch, path, "", string(types.MergePatchType), `{"metadata":{"finalizers":["` + foreign + `"]}}`},
		"patch on condition of the uid":    {http.MethodPatch, path, "", string(types.MergePatchType), `{"metadata":{"uid":"` + string(secret.GetUID()) + `","finalizers":["` + foreign + `"]}}`},
		"add an owner":                     patch(`"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]`),
		"take another's finalizer away":    patch(`"finalizers":["foregroundDeletion"]`),
		"take all finalizers away":         patch(`"finalizers":null`),
		"add a finalizer":                  patch(`"finalizers":["` + foreign + `","foregroundDeletion","example.com/other"]`),
		"act as an administrator":          {http.MethodGet, path, asMetadata, "", ""}, // with the header below
		"make itself an administrator":     {http.MethodPatch, "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:coppice:collector", "", string(types.MergePatchType), `{"rules":[]}`},
		"delete the namespace, on nothing": {http.MethodDelete, "/api/v1/namespaces/" + namespace, "", "", ""},
	} {
		c := rest.CopyConfig(config)
		if name == "act as an administrator" {
			c.Impersonate = rest.ImpersonationConfig{UserName: "root", Groups: []string{"system:masters"}}
		}
		code, answer := forge(t, c, f)
		if code != http.StatusForbidden {
			t.Errorf("%s: %d %s", name, code, answer)
		}
		if strings.Contains(answer, secretContent) {
			t.Errorf("%s: the answer has the content of a secret", name)
		}
	}
	if now, err := s.client(t).send(http.MethodGet, path, "", nil); err != nil || now.GetResourceVersion() != secret.GetResourceVersion() {
		t.Errorf("the secret was changed: %v", err)
	}
}

// The collector's own requests are admitted, and answered with metadata whatever else they accept.
func TestTheCollectorsOwnRequests(t *testing.T) {
	s := sharedServer(t)
	for name, config := range s.collectors(t) {
		t.Run(name, func(t *testing.T) { collectAs(t, s, config) })
	}
}

func collectAs(t *testing.T, s *server, config *rest.Config) {
	t.Helper()
	path, secret := s.secret(t, s.namespace(t), "held", foreign, foreground)
	parent := path[:strings.LastIndex(path, "/")]
	conditions := `"uid":"` + string(secret.GetUID()) + `","resourceVersion":"` + secret.GetResourceVersion() + `"`
	for name, f := range map[string]forged{
		"get":                   {http.MethodGet, path, asMetadata + ",application/json", "", ""},
		"get, whatever":         {http.MethodGet, path, "application/json," + asMetadata, "", ""},
		"list":                  {http.MethodGet, parent, "application/json, " + asMetadataList, "", ""},
		"list one":              {http.MethodGet, parent + "?fieldSelector=metadata.name%3Dheld", asMetadataList, "", ""},
		"watch":                 {http.MethodGet, parent + "?watch=true&timeoutSeconds=1", asMetadata, "", ""},
		"delete":                {http.MethodDelete, path, "application/json", "application/json", `{"dryRun":["All"],"preconditions":{` + conditions + `}}`},
		"finish":                {http.MethodPatch, path + "?dryRun=All", "application/json", string(types.MergePatchType), `{"metadata":{` + conditions + `,"finalizers":["` + foreign + `"]}}`},
		"review its own access": {http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "", "application/json", `{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`},
		"discover":              {http.MethodGet, "/apis", "", "", ""},
		"create an event":       {http.MethodPost, "/api/v1/namespaces/default/events", "", "application/json", `{"metadata":{"generateName":"e","namespace":"default"},"involvedObject":{"namespace":"default"},"reason":"x"}`},
	} {
		code, answer := forge(t, config, f)
		if code >= http.StatusBadRequest || answer == "" {
			t.Errorf("%s: %d %s", name, code, answer)
		}
		if strings.Contains(answer, secretContent) {
			t.Errorf("%s: the answer has the content of a secret: %s", name, answer)
		}
	}
}

// The namespace controller deletes objects in terminating namespaces only (R16).
func TestForgedRequestsOfTheNamespaceController(t *testing.T) {
	s := sharedServer(t)
	config, err := s.NamespaceController()
	if err != nil {
		t.Fatal(err)
	}
	active, going := s.namespace(t), s.namespace(t)
	path, secret := s.secret(t, active, "a")
	collection := strings.TrimSuffix(path, "/a")
	gone, _ := s.secret(t, going, "a")
	s.namespaces(t).mustRemove(going, nil)
	for name, f := range map[string]forged{
		"read a whole object":            {http.MethodGet, path, "application/json", "", ""},
		"delete in an active namespace":  {http.MethodDelete, path, "", "application/json", `{"preconditions":{"uid":"` + string(secret.GetUID()) + `"}}`},
		"delete all of it":               {http.MethodDelete, collection, "", "", ""},
		"delete on no condition":         {http.MethodDelete, gone, "", "", ""},
		"delete a namespace":             {http.MethodDelete, "/api/v1/namespaces/" + active, "", "", ""},
		"delete what is in no namespace": {http.MethodDelete, "/apis/rbac.authorization.k8s.io/v1/clusterroles/view", "", "", ""},
		"patch":                          {http.MethodPatch, gone, "", string(types.MergePatchType), `{}`},
		"finish an active namespace":     {http.MethodPut, "/api/v1/namespaces/" + active + "/finalize", "", "application/json", `{"metadata":{"name":"` + active + `"},"spec":{}}`},
		"mark an active namespace":       {http.MethodPut, "/api/v1/namespaces/" + active + "/status", "", "application/json", `{"metadata":{"name":"` + active + `"},"status":{"phase":"Active","conditions":[{"type":"NamespaceContentRemaining","status":"True"}]}}`},
		"change a namespace":             {http.MethodPut, "/api/v1/namespaces/" + going, "", "application/json", `{"metadata":{"name":"` + going + `"}}`},
		"create":                         {http.MethodPost, collection, "", "application/json", `{"metadata":{"name":"b"}}`},
	} {
		if code, answer := forge(t, config, f); code != http.StatusForbidden || strings.Contains(answer, secretContent) {
			t.Errorf("%s: %d %s", name, code, answer)
		}
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	secrets := client.Resource(gvk("", "v1", "Secret").GroupVersion().WithResource("secrets")).Namespace(going)
	if list, err := secrets.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
		t.Errorf("%v %v", list, err)
	}
	if err := secrets.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

// The protection controller removes its finalizer from objects that are being deleted, changes
// nothing else, and reads no other resources (R23).
func TestForgedRequestsOfTheProtectionController(t *testing.T) {
	s := sharedServer(t)
	config, err := s.ProtectionController()
	if err != nil {
		t.Fatal(err)
	}
	namespace := s.namespace(t)
	secret, _ := s.secret(t, namespace, "a")
	claims := s.claims(t, namespace)
	active := claims.create("active", foreign)
	claims.create("going", foreign)
	going := claims.mustRemove("going", nil)
	patch := func(o *object, metadata, more string) forged {
		return forged{http.MethodPatch, claims.at(o.GetName()), "", string(types.MergePatchType), `{"metadata":{"uid":"` + string(o.GetUID()) + `","resourceVersion":"` + o.GetResourceVersion() + `",` + metadata + `}` + more + `}`}
	}
	released := `"finalizers":["` + foreign + `"]`
	for name, f := range map[string]forged{
		"read a secret":                  {http.MethodGet, secret, "", "", ""},
		"read a secret's metadata":       {http.MethodGet, secret, asMetadata, "", ""},
		"read a status":                  {http.MethodGet, claims.at("going", "status"), "", "", ""},
		"release what is active":         patch(active, released, ""),
		"take another's finalizer away":  patch(going, `"finalizers":["`+inuse.PVCProtection+`"]`, ""),
		"take all finalizers away":       patch(going, `"finalizers":null`, ""),
		"add an owner":                   patch(going, `"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]`, ""),
		"patch labels":                   patch(going, `"labels":{"a":"b"}`, ""),
		"patch a claim's spec":           patch(going, released, `,"spec":{"volumeName":"x"}`),
		"patch without preconditions":    {http.MethodPatch, claims.at("going"), "", string(types.MergePatchType), `{"metadata":{` + released + `}}`},
		"patch by JSON patch":            {http.MethodPatch, claims.at("going"), "", string(types.JSONPatchType), `[{"op":"remove","path":"/metadata/finalizers/1"}]`},
		"patch a status":                 {http.MethodPatch, claims.at("going", "status"), "", string(types.MergePatchType), `{"metadata":{` + released + `}}`},
		"update":                         {http.MethodPut, claims.at("going"), "", "application/json", `{"metadata":{"name":"going"}}`},
		"delete a claim":                 {http.MethodDelete, claims.at("active"), "", "", ""},
		"delete a pod":                   {http.MethodDelete, "/api/v1/namespaces/" + namespace + "/pods/x", "", "", ""},
		"patch a pod":                    {http.MethodPatch, "/api/v1/namespaces/" + namespace + "/pods/x", "", string(types.MergePatchType), `{"metadata":{"uid":"x","resourceVersion":"1","finalizers":null}}`},
		"create":                         {http.MethodPost, claims.path, "", "application/json", `{"metadata":{"name":"b"}}`},
		"make itself an administrator":   {http.MethodPatch, "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:coppice:protection-controller", "", string(types.MergePatchType), `{"rules":[]}`},
		"read the leader election lease": {http.MethodGet, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/coppice-controllers", "", "", ""},
		"read metrics":                   {http.MethodGet, "/metrics", "", "", ""},
	} {
		if code, answer := forge(t, config, f); code != http.StatusForbidden || strings.Contains(answer, secretContent) {
			t.Errorf("%s: %d %s", name, code, answer)
		}
	}
	if now := claims.get("going"); now.GetResourceVersion() != going.GetResourceVersion() {
		t.Errorf("it was changed to %v", now)
	}
	if code, answer := forge(t, config, patch(going, released, "")); code != http.StatusOK {
		t.Errorf("its own request: %d %s", code, answer)
	}
}

// The storage version migrator makes the server write objects anew, changes none, and reads only metadata (R16).
func TestForgedRequestsOfTheStorageVersionMigrator(t *testing.T) {
	s := sharedServer(t)
	config, err := s.StorageVersionMigrator()
	if err != nil {
		t.Fatal(err)
	}
	namespace := s.namespace(t)
	secret, _ := s.secret(t, namespace, "a")
	claims := s.claims(t, namespace)
	claim := claims.create("a", foreign)
	preconditions := `"uid":"` + string(claim.GetUID()) + `","resourceVersion":"` + claim.GetResourceVersion() + `"`
	patch := func(more string) forged {
		return forged{http.MethodPatch, claims.at("a"), "", string(types.MergePatchType), `{"metadata":{` + preconditions + more + `}}`}
	}
	const migrations = "/apis/storagemigration.k8s.io/v1/storageversionmigrations"
	for name, f := range map[string]forged{
		"read a secret":               {http.MethodGet, secret, "", "", ""},
		"list secrets":                {http.MethodGet, strings.TrimSuffix(secret, "/a"), "application/json", "", ""},
		"remove a finalizer":          patch(`,"finalizers":null`),
		"add an owner":                patch(`,"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]`),
		"patch labels":                patch(`,"labels":{"a":"b"}`),
		"patch without preconditions": {http.MethodPatch, claims.at("a"), "", string(types.MergePatchType), `{"metadata":{}}`},
		"patch a status":              {http.MethodPatch, claims.at("a", "status"), "", string(types.MergePatchType), `{"status":{"phase":"Lost"}}`},
		"update":                      {http.MethodPut, claims.at("a"), "", "application/json", `{"metadata":{"name":"a"}}`},
		"delete":                      {http.MethodDelete, claims.at("a"), "", "", ""},
		"create a migration":          {http.MethodPost, migrations, "", "application/json", `{"metadata":{"name":"a"},"spec":{"resource":{"resource":"pods"}}}`},
		"patch a definition": {
			http.MethodPatch, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/x", "", string(types.MergePatchType), `{"spec":{"scope":"Cluster"}}`,
		},
	} {
		if code, answer := forge(t, config, f); code != http.StatusForbidden || strings.Contains(answer, secretContent) {
			t.Errorf("%s: %d %s", name, code, answer)
		}
	}
	if code, answer := forge(t, config, patch("")); code != http.StatusOK {
		t.Errorf("its own request: %d %s", code, answer)
	}
	if now := claims.get("a"); now.GetResourceVersion() != claim.GetResourceVersion() {
		t.Errorf("an object that is stored as it should be was written: %v", now)
	}
}

// The user of leader election writes its Lease, and nothing else (R16).
func TestForgedRequestsOfLeaderElection(t *testing.T) {
	s := sharedServer(t)
	config, err := s.LeaderElection()
	if err != nil {
		t.Fatal(err)
	}
	namespace := s.namespace(t)
	secret, _ := s.secret(t, namespace, "a")
	const leases = "/apis/coordination.k8s.io/v1/namespaces/"
	lease := func(name string) string { return `{"metadata":{"name":"` + name + `"},"spec":{"holderIdentity":"x"}}` }
	for name, f := range map[string]forged{
		"read a secret":          {http.MethodGet, secret, "", "", ""},
		"read another namespace": {http.MethodGet, "/api/v1/namespaces/" + namespace, "", "", ""},
		"read another lease":     {http.MethodGet, leases + "kube-system/leases/other", "", "", ""},
		"list leases":            {http.MethodGet, leases + "kube-system/leases", "", "", ""},
		"create another lease":   {http.MethodPost, leases + "kube-system/leases", "", "application/json", lease("other")},
		"the name, elsewhere":    {http.MethodPost, leases + namespace + "/leases", "", "application/json", lease("coppice-controllers")},
		"delete the lease":       {http.MethodDelete, leases + "kube-system/leases/coppice-controllers", "", "", ""},
		"patch the lease":        {http.MethodPatch, leases + "kube-system/leases/coppice-controllers", "", string(types.MergePatchType), `{"spec":{}}`},
		"create something":       {http.MethodPost, "/api/v1/namespaces/" + namespace + "/configmaps", "", "application/json", `{"metadata":{"name":"b"}}`},
		"delete the namespace":   {http.MethodDelete, "/api/v1/namespaces/" + namespace, "", "", ""},
		"finalize a namespace":   {http.MethodPut, "/api/v1/namespaces/" + namespace + "/finalize", "", "application/json", `{"metadata":{"name":"` + namespace + `"}}`},
	} {
		if code, answer := forge(t, config, f); code != http.StatusForbidden || strings.Contains(answer, secretContent) {
			t.Errorf("%s: %d %s", name, code, answer)
		}
	}
	if code, answer := forge(t, config, forged{http.MethodPost, leases + "kube-system/leases", "", "application/json", lease("coppice-controllers")}); code != http.StatusCreated {
		t.Errorf("its own request: %d %s", code, answer)
	}
}
