package containers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// seen is the output of the container of TestPodWaitsForItsConfigMap.
const seen = `
settings: a b
text of a, once more as a part: text of a
secret: s3cret
labels: story="references"
variables: text of b, s3cret
read only
`

// TestPodWaitsForItsConfigMap: a pod waits for the config map that it refers to, and reports that; then its
// volumes and variables have the values of the config map, the secret and its own fields.
func TestPodWaitsForItsConfigMap(t *testing.T) {
	t.Parallel()
	p, _ := sharedPlane(t)
	s := newStory(t, p)
	p.run(t, "create", "secret", "generic", "keys", "--from-literal=key=s3cret")
	p.apply(t, pod(s.name, s.out))
	eventually.Agrees(t, func() string {
		there := p.pod(t, s.name)
		if there == nil || len(there.Status.ContainerStatuses) == 0 {
			return "no container yet"
		}
		w := there.Status.ContainerStatuses[0].State.Waiting
		if w == nil || w.Reason != "CreateContainerConfigError" || !strings.Contains(w.Message, `configmap "settings" not found`) {
			return fmt.Sprintf("waits for %+v, want the config map", w)
		}
		return ""
	})
	p.run(t, "create", "configmap", "settings", "--from-literal=a=text of a", "--from-literal=b=text of b")
	s.mark("done")
	if got := "\n" + s.read("seen"); got != seen {
		t.Errorf("it sees %s\nwant %s", got, seen)
	}
	p.run(t, "delete", "pod", s.name)
	p.run(t, "delete", "configmap/settings", "secret/keys")
}

// pod returns the manifest of a pod that refers to settings and keys and writes them to out.
func pod(name, out string) string {
	script := `exec > /out/seen
echo settings: $(ls /etc/settings)
echo $(cat /etc/settings/a), once more as a part: $(cat /etc/a)
echo secret: $(cat /etc/keys/deep/key)
echo labels: $(cat /etc/self/labels)
echo variables: $B, $KEY
touch /etc/settings/c 2>/dev/null || echo read only
touch /out/done
` + idle
	network := ""
	if !once.daemon.network {
		network = "hostNetwork: true"
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {story: references}}
spec:
  %s
  containers:
  - name: main
    image: %s
    command: [sh, -c, %q]
    env:
    - {name: B, valueFrom: {configMapKeyRef: {name: settings, key: b}}}
    - {name: KEY, valueFrom: {secretKeyRef: {name: keys, key: key}}}
    volumeMounts:
    - {name: settings, mountPath: /etc/settings}
    - {name: settings, mountPath: /etc/a, subPath: a}
    - {name: keys, mountPath: /etc/keys}
    - {name: self, mountPath: /etc/self}
    - {name: out, mountPath: /out}
  volumes:
  - {name: settings, configMap: {name: settings}}
  - {name: keys, projected: {sources: [{secret: {name: keys, items: [{key: key, path: deep/key}]}}]}}
  - {name: self, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
  - {name: out, hostPath: {path: %s}}
`, name, network, image, script, out)
}
