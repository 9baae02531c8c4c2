package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// TestTargetsAreThoseOfKubectlDelete chooses objects as kubectl delete does.
func TestTargetsAreThoseOfKubectlDelete(t *testing.T) {
	atHome(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one := write("one.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: absent}}\n")
	write("below/list.yaml", "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: other}}]}")
	strange := write("strange/widget.yaml", "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}}")
	below := filepath.Join(dir, "below")
	for line, want := range map[string]string{
		"cm/a cm/a":                             "a",
		"cm a c":                                "a c",
		"cm -l app=web":                         "a",
		"cm -l app=web -A":                      "a b",
		"cm -l app!=web":                        "c",
		"cm --all":                              "a c",
		"cm --all -A":                           "a b c",
		"-f " + one:                             "a",
		"-f " + one + " -f " + below:            "a b",
		"-R -f " + below:                        "b",
		"-n default -f " + below:                "error: --namespace is default",
		"-f " + strange:                         "error: does not serve",
		"-f " + filepath.Join(dir, "none.yaml"): "error: read the manifests",
		"cm":                                    "error: name objects of cm",
		"":                                      "error: name the objects",
		"cm/a -A":                               "error: leave out --all-namespaces",
		"cm/a --all":                            "error: without names",
		"cm --all -l app=web":                   "error: exclude each other",
		"cm -f " + one:                          "error: leave out TYPE",
		"cm -l a=b=c":                           "error: --selector",
	} {
		t.Run(line, func(t *testing.T) {
			got, err := chosen(strings.Fields(line), targetInventory())
			if reason, ok := strings.CutPrefix(want, "error: "); ok {
				if err == nil || !strings.Contains(err.Error(), reason) {
					t.Errorf("got %q and the error %v, want %q", got, err, reason)
				}
				return
			}
			if slices.Sort(got); err != nil || strings.Join(got, " ") != want {
				t.Errorf("got %q and the error %v, want %s", got, err, want)
			}
		})
	}
}

// chosen returns the UIDs of the objects that a command line selects.
func chosen(args []string, inv *inventory.Inventory) ([]string, error) {
	var cluster clusterFlags
	var f targetFlags
	c := &cobra.Command{}
	cluster.add(c)
	f.add(c)
	if err := c.ParseFlags(args); err != nil {
		return nil, err
	}
	if err := f.check(c.Flags().Args(), cluster.allNamespaces); err != nil {
		return nil, err
	}
	uids, err := (&targets{&f, &cluster, c.Flags().Args()}).Choose(inv, new(strings.Builder))
	var names []string
	for _, uid := range uids {
		names = append(names, string(uid))
	}
	return names, err
}

// targetInventory has ConfigMaps a and c in namespace default, and b in other; a and b are labelled.
func targetInventory() *inventory.Inventory {
	r := &inventory.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"), Kind: "ConfigMap", Namespaced: true, Deletable: true, ShortNames: []string{"cm"}}
	inv := &inventory.Inventory{Resources: []*inventory.Resource{r}}
	for name, namespace := range map[string]string{"a": "default", "b": "other", "c": "default"} {
		o := &inventory.Object{Resource: r}
		o.UID, o.Kind, o.Namespace, o.Name = ownership.UID(name), r.OwnerKind(), namespace, name
		if name != "c" {
			o.Labels = inventory.Labels{{Name: "app", Value: "web"}}
		}
		inv.Objects = append(inv.Objects, o)
	}
	inv.Index()
	return inv
}
