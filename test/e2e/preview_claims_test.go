package e2e

import (
	"strings"
	"testing"
)

// usedVolumes are a claim that a pod uses which has ended, and a volume that is bound to another claim.
const usedVolumes = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: cache}
spec: {accessModes: [ReadWriteOnce], storageClassName: '', resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: done}
spec:
  nodeName: nowhere
  containers: [{name: c, image: example.com/none}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: cache}}]
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: claimed-disk}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 1Gi}
  storageClassName: ''
  hostPath: {path: /nowhere}
  claimRef: {namespace: claims, name: bound}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: bound}
spec: {accessModes: [ReadWriteOnce], storageClassName: '', volumeName: claimed-disk, resources: {requests: {storage: 1Gi}}}
`

// The preview, explain and the controller agree that a pod that has ended uses its claim, and that a volume is in use
// while a claim is bound to it (R23).
func TestR23_ToolsAgreeWithTheController(t *testing.T) {
	t.Parallel()
	p := sharedPlane(t)
	k := ourKubectl(p)
	const namespace = "claims"
	k.run(t, "create", "namespace", namespace)
	k.apply(t, namespace, usedVolumes)
	t.Cleanup(func() {
		k.run(t, "delete", "-n", namespace, "pod", "done", "--force")
		k.run(t, "delete", "namespace", namespace)
		k.run(t, "delete", "persistentvolume", "claimed-disk", "--ignore-not-found")
	})
	k.run(t, "patch", "-n", namespace, "pod", "done", "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Succeeded"}}`)
	for _, test := range []struct{ target, previewed, explained string }{
		{"persistentvolumeclaim/cache", "waits for what uses it: Pod claims/done", "stuck: Pod claims/done has ended, and uses it"},
		{"persistentvolume/claimed-disk", "waits for what uses it: PersistentVolumeClaim claims/bound", "stuck: PersistentVolumeClaim claims/bound is bound to it"},
	} {
		check := func(command, words string) {
			t.Helper()
			for _, address := range []string{"", "none"} {
				args := append(strings.Fields(command), "--kubeconfig", p.kubeconfig, "-n", namespace, test.target, "--address", address)
				if out, errs, _ := coppice(t, args...); !strings.Contains(out, words) {
					t.Errorf("%q: no %q in\n%s%s", args, words, out, errs)
				}
			}
		}
		check("preview delete", test.previewed)
		k.run(t, "delete", "-n", namespace, test.target, "--wait=false")
		check("explain", test.explained)
		k.get(t, namespace, test.target, "{.metadata.name}") // it is there
	}
}
