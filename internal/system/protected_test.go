package system

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// No way to delete an object bypasses its protection: every deletion, by any user and request, is refused
// exactly in the modes that refuse it. After the protection is removed, the same way deletes the object.
func TestR28_NoHoles(t *testing.T) {
	o := ephemeral(t)
	o.Workloads, o.AuditPath = InProcess, filepath.Join(t.TempDir(), "audit.log")
	runWithPlane(t, o, func(ctx context.Context, p Plane) error {
		e, err := newProtectedEnv(ctx, p, o.AuditPath)
		if err != nil {
			return err
		}
		var holes errgroup.Group
		holes.SetLimit(16)
		for i, w := range waysToDelete() {
			for _, mode := range protection.Modes() {
				holes.Go(func() error {
					in := attempt{protectedEnv: e, namespace: fmt.Sprintf("way-%d-%s", i, mode), mode: mode}
					if err := in.check(ctx, w); err != nil {
						t.Errorf("%s, %s: %v", w.name, mode, err)
					}
					return nil
				})
			}
		}
		return holes.Wait()
	})
}

// No way to delete an object bypasses the default mode of its resource, and the label none lifts it.
func TestR28_DefaultsHaveNoHoles(t *testing.T) {
	ways := waysToDelete()
	isOfNamespaces := func(w way) bool { return w.name == "DELETE of a namespace" }
	for resources, belongs := range map[string]func(way) bool{
		// Other ways delete namespaces with contents.
		"namespaces": isOfNamespaces,
		"configmaps pods jobs deployments custom": func(w way) bool { return !isOfNamespaces(w) },
	} {
		t.Run(resources, func(t *testing.T) {
			t.Parallel()
			o := ephemeral(t)
			o.Workloads, o.AuditPath, o.Protect = InProcess, filepath.Join(t.TempDir(), "audit.log"), protection.Defaults{}
			for _, r := range []schema.GroupVersionResource{configMaps(), pods(), jobs(), deployments(), corev1.SchemeGroupVersion.WithResource("namespaces")} {
				if strings.Contains(resources, r.Resource) {
					o.Protect[r.GroupResource()] = protection.Unused
				}
			}
			for i := range ways {
				o.Protect[schema.GroupResource{Group: defaultNamespace(i) + ".example.com", Resource: "widgets"}] = protection.Unused
			}
			runWithPlane(t, o, func(ctx context.Context, p Plane) error {
				e, err := newProtectedEnv(ctx, p, o.AuditPath)
				if err != nil {
					return err
				}
				e.byDefault = true
				var holes errgroup.Group
				holes.SetLimit(16)
				for i, w := range ways {
					if !belongs(w) {
						continue
					}
					holes.Go(func() error {
						in := attempt{protectedEnv: e, namespace: defaultNamespace(i), mode: protection.Unused}
						if err := in.check(ctx, w); err != nil {
							t.Errorf("%s: %v", w.name, err)
						}
						return nil
					})
				}
				return holes.Wait()
			})
		})
	}
}

func defaultNamespace(way int) string { return fmt.Sprintf("way-%d-default", way) }

// protectedEnv is the control plane.
type protectedEnv struct {
	plane   Plane
	client  kubernetes.Interface
	objects dynamic.Interface
	audit   string
	// byDefault: the subject is protected by the default of its resource, without a label.
	byDefault bool
}

func newProtectedEnv(ctx context.Context, p Plane, audit string) (protectedEnv, error) {
	e := protectedEnv{plane: p, audit: audit}
	var err error
	if e.client, err = kubernetes.NewForConfig(p.Config); err != nil {
		return e, err
	}
	if e.objects, err = dynamic.NewForConfig(p.Config); err != nil {
		return e, err
	}
	_, err = e.client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "consumer"}}, metav1.CreateOptions{})
	return e, err
}

// attempt is one way to delete an object that is protected in one mode, in a namespace of its own.
type attempt struct {
	protectedEnv

	namespace string
	mode      protection.Mode
}

// subject is the protected object.
type subject struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

// way is a way to delete an object.
type way struct {
	name string
	// cascade means that the object is deleted because another one is.
	cascade bool
	// prepare creates the initial objects, including the subject.
	prepare func(ctx context.Context, in attempt) (subject, error)
	// begin deletes. It returns the error of the request for the object itself, if begin sends one.
	begin func(ctx context.Context, in attempt, what subject) error
	// requested means that begin sends the request; otherwise a controller sends it, and the audit log
	// contains the refusal.
	requested bool
	// slow means that a refused deletion is tried again only after a minute, for which the test does not
	// wait.
	slow bool
	// refused checks the visible effects on other objects when the object stays; nil: none.
	refused func(ctx context.Context, in attempt, what subject) error
}

func (in attempt) check(ctx context.Context, w way) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: in.namespace}}
	if _, err := in.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	what, err := w.prepare(ctx, in)
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if err := in.protect(ctx, what); err != nil {
		return fmt.Errorf("protect: %w", err)
	}
	err = w.begin(ctx, in, what)
	if in.mode == protection.Cascading && !w.cascade {
		if err != nil {
			return fmt.Errorf("refused: %w", err)
		}
		return in.goes(ctx, what)
	}
	if err := in.stays(ctx, w, what, err); err != nil {
		return err
	}
	if err := in.unprotect(ctx, what); err != nil {
		return err
	}
	switch {
	case w.slow:
		return nil
	case w.requested:
		if err := w.begin(ctx, in, what); err != nil {
			return fmt.Errorf("lifted: %w", err)
		}
	}
	return in.goes(ctx, what)
}

// stays checks that the deletion was refused, and that the object is as before.
func (in attempt) stays(ctx context.Context, w way, what subject, err error) error {
	if w.requested {
		if message, refused := protection.Refused(err); !refused || !strings.Contains(message, "coppice unprotect ") {
			return fmt.Errorf("the request was answered with %w", errors.Join(err, errors.New("and not refused")))
		}
	} else if err != nil {
		return err
	}
	if w.refused != nil {
		if err := w.refused(ctx, in, what); err != nil {
			return err
		}
	}
	object, err := in.of(what).Get(ctx, what.name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("a hole: %w", err)
	}
	if object.GetDeletionTimestamp() != nil {
		return errors.New("a hole: it is being deleted")
	}
	return nil
}

// goes waits until the object is being deleted, or no longer exists.
func (in attempt) goes(ctx context.Context, what subject) error {
	return becomesTrue(ctx, "it goes", func(ctx context.Context) (bool, error) {
		object, err := in.of(what).Get(ctx, what.name, metav1.GetOptions{})
		if err != nil {
			return unlessMissing(err) == nil, unlessMissing(err)
		}
		return object.GetDeletionTimestamp() != nil, nil
	})
}

func (in attempt) of(what subject) dynamic.ResourceInterface {
	if what.namespace == "" {
		return in.objects.Resource(what.resource)
	}
	return in.objects.Resource(what.resource).Namespace(what.namespace)
}

func (in attempt) protect(ctx context.Context, what subject) error {
	metadata := map[string]any{"labels": map[string]any{protection.Label: string(in.mode)}}
	if in.mode == protection.Unused {
		if err := in.use(ctx, what); err != nil {
			return err
		}
	}
	if in.byDefault {
		return nil
	}
	if in.mode == protection.Outlives {
		list, err := protection.FormatOutlives([]protection.Outlived{{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "consumer"}})
		if err != nil {
			return err
		}
		metadata["annotations"] = map[string]any{protection.Annotation: list}
	}
	return in.patch(ctx, what, metadata)
}

// use creates an object that needs the subject, or is in it, and that stays in a namespace that goes.
func (in attempt) use(ctx context.Context, what subject) error {
	object, err := in.of(what).Get(ctx, what.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	backend := &corev1.TypedLocalObjectReference{Kind: object.GetKind(), Name: what.name}
	if group := object.GroupVersionKind().Group; group != "" {
		backend.APIGroup = &group
	}
	_, err = in.client.NetworkingV1().Ingresses(in.namespace).Create(ctx, &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "user-", Finalizers: []string{"acme.io/stays"}},
		Spec:       networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{Resource: backend}},
	}, metav1.CreateOptions{})
	return err
}

func (in attempt) unprotect(ctx context.Context, what subject) error {
	var label any
	if in.byDefault {
		label = protection.None
	}
	return in.patch(ctx, what, map[string]any{"labels": map[string]any{protection.Label: label}})
}

func (in attempt) patch(ctx context.Context, what subject, metadata map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	_, err = in.of(what).Patch(ctx, what.name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// refusedInAudit waits until a DELETE of the object was refused.
func refusedInAudit(ctx context.Context, in attempt, what subject) error {
	return becomesTrue(ctx, "a DELETE of it is refused", func(context.Context) (bool, error) {
		n, err := countRefusals(in.audit, what)
		return n > 0, err
	})
}

// countRefusals returns the number of refused DELETEs of an object in the audit log.
func countRefusals(audit string, what subject) (int, error) {
	file, err := os.Open(audit)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	n := 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if !strings.Contains(lines.Text(), what.namespace) {
			continue
		}
		var event auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			continue // the last line may be incomplete
		}
		of := event.ObjectRef
		if event.Verb == "delete" && of != nil && of.Namespace == what.namespace && of.Name == what.name && event.ResponseStatus != nil && event.ResponseStatus.Code == 403 {
			n++
		}
	}
	return n, nil
}

func create(ctx context.Context, objects dynamic.ResourceInterface, manifest string) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON([]byte(manifest)); err != nil {
		return nil, err
	}
	return objects.Create(ctx, object, metav1.CreateOptions{})
}

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

func (in attempt) patchSpec(ctx context.Context, what subject, patch string) error {
	_, err := in.of(what).Patch(ctx, what.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// An operator stays as long as any object, of any kind and in any namespace, has the finalizer that only
// this operator removes.
func TestR28_OutlivesFinalizer(t *testing.T) {
	o := ephemeral(t)
	runWithPlane(t, o, func(ctx context.Context, p Plane) error {
		client, err := kubernetes.NewForConfig(p.Config)
		if err != nil {
			return err
		}
		list, err := protection.FormatOutlives([]protection.Outlived{{Finalizer: "acme.io/cleanup"}})
		if err != nil {
			return err
		}
		operator := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "operator", Labels: map[string]string{protection.Label: "outlives"}, Annotations: map[string]string{protection.Annotation: list},
		}}
		served := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "served", Finalizers: []string{"acme.io/cleanup"}}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, operator, metav1.CreateOptions{}); err != nil {
			return err
		}
		if _, err := client.CoreV1().Secrets("kube-public").Create(ctx, served, metav1.CreateOptions{}); err != nil {
			return err
		}
		remove := func(want string) error {
			return becomesTrue(ctx, want, func(ctx context.Context) (bool, error) {
				err := client.CoreV1().ConfigMaps("default").Delete(ctx, operator.Name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
				message, refused := protection.Refused(err)
				return refused == (want != "") && strings.Contains(message, want), nil
			})
		}
		if err := remove("it outlives objects with the finalizer acme.io/cleanup; to lift"); err != nil {
			return err
		}
		if err := client.CoreV1().Secrets("kube-public").Delete(ctx, served.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		if err := remove("it outlives objects with the finalizer acme.io/cleanup; to lift"); err != nil {
			return fmt.Errorf("while it is being deleted: %w", err)
		}
		if _, err := client.CoreV1().Secrets("kube-public").Patch(ctx, served.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			return err
		}
		return remove("")
	})
}
