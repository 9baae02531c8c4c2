// Package kubeletapi is the API of the kubelet as far as a node agent has it: logs of containers, and
// streams to the processes and ports of a pod. An API server sends the requests, and an agent in
// another process serves them:
//
//	kubectl logs ─▶ pods/NAME/log  ─▶ GET /containerLogs/NAMESPACE/POD/CONTAINER?… ─▶ agent ─▶ runtime
//	kubectl exec ─▶ pods/NAME/exec ─▶ POST /exec/NAMESPACE/POD/CONTAINER?…         ─▶ agent ─▶ runtime
//
// Paths and query parameters are the kubelet's. LogURL and StreamRequest.URL write a request, and
// ParseLogOptions and ParseStream read the same one. The connection of a stream is upgraded (SPDY or
// WebSocket), and each of the parts above forwards its bytes to the next one. Users reach the server
// through nodes/proxy, too: for them it serves /healthz and /pods.
//
// Logs may contain secrets, and a user who can run a command in a container has all access that the
// container has. The server therefore answers a single client, which it identifies by its
// certificate, and presents a certificate that is valid for its own node only. Neither side sends
// any data before it has verified the other.
package kubeletapi

import (
	"errors"
	"net/url"

	"k8s.io/apimachinery/pkg/types"
)

// ErrNoContainer is the error of a log or a stream of a container that has no such instance.
var ErrNoContainer = errors.New("not found")

// ErrNoProcesses is the error of a stream to a container in which no process runs.
var ErrNoProcesses = errors.New("it is simulated: no process runs in its containers")

// uidParameter carries the pod's UID to the agent. The kubelet has no such parameter. With it, the
// agent never returns the log of an earlier or later pod of the same name, nor a stream to it.
const uidParameter = "uid"

// matchesUID reports whether these query parameters name this UID, or no UID.
func matchesUID(values url.Values, uid types.UID) bool {
	requested := values.Get(uidParameter)
	return requested == "" || requested == string(uid)
}
