package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
)

const (
	// protectManager is the field manager of coppice protect.
	protectManager = "coppice-protect"
	// protectTries bounds how often an object is read again after a conflict.
	protectTries = 5
)

// protectFlags are the flags of coppice protect and unprotect.
type protectFlags struct {
	cluster clusterFlags
	target  targetFlags
	mode    string
	of      []string
	output  string
}

func (f *protectFlags) add(c *cobra.Command) {
	f.cluster.add(c)
	f.target.add(c)
	c.Flags().StringVarP(&f.output, "output", "o", "table", "format: "+strings.Join(answerFormats(), ", "))
	completeWith(c, "output", answerFormats()...)
}

func newProtect(s Streams) *cobra.Command {
	var f protectFlags
	c := &cobra.Command{
		Use:   "protect TYPE/NAME ... | TYPE NAME ... | TYPE -l LABELS | -f FILE",
		Short: "Keep objects from being deleted",
		Long: `Labels objects as protected. The modes are

  always     no request deletes the object, until "coppice unprotect"
  cascading  users and controllers can delete the object by name; the deletion of its owner,
             namespace or CustomResourceDefinition does not
  outlives   no request deletes the object before all objects of --of are gone
  unused     no request deletes the object while it is in use: by an instance of the
             CustomResourceDefinition, by a content of the namespace, or by an object that
             names it in a field of Kubernetes' API, as pods name Secrets and volume claims

TYPE --all labels the objects that exist now, and no object that is created later. A default
mode is for all objects of a resource, at any time: start the server with "coppice up
--protect RESOURCE=MODE", or see docs/protect.md for other servers.

The server of "coppice up" enforces protection. Other servers do so with the policies or the
webhook of Coppice (docs/protect.md). Users who may update an object may also unprotect it:
protection prevents mistakes, and takes no rights away.

--of adds to the objects that an object outlives already. It names an object as TYPE/NAME, in
another namespace as TYPE/NAMESPACE/NAME, and all objects with a finalizer as finalizer/NAME.
With finalizer/NAME, an operator stays until it has cleaned up all its objects. On a server
with the webhook, --mode=outlives without --of makes the webhook check the list again.`,
		Example: `  # No request deletes this volume claim
  coppice protect pvc/data

  # Only a deletion by name deletes this Secret, not that of its namespace
  coppice protect secret/root-ca --mode=cascading

  # The database stays as long as one of these objects exists
  coppice protect statefulset/db --of deployment/shop --of deployment/billing/invoices

  # The definition stays as long as there is an instance of it
  coppice protect crd/widgets.acme.io --mode=unused

  # The operator stays as long as an object has its finalizer
  coppice protect deployment/operator -n acme --of finalizer/acme.io/cleanup

  # List protected objects and their modes
  coppice protect list -A`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, args []string) error { return protect(c.Context(), &f, args, s) },
	}
	f.add(c)
	c.Flags().StringVar(&f.mode, "mode", "", "mode of protection: "+strings.Join(modeNames(), ", ")+" (default always, or outlives with --of)")
	c.Flags().StringArrayVar(&f.of, "of", nil, "object to outlive: TYPE/NAME, TYPE/NAMESPACE/NAME or finalizer/NAME; may be repeated")
	completeWith(c, "mode", modeNames()...)
	c.AddCommand(newProtectList(s))
	return c
}

func newUnprotect(s Streams) *cobra.Command {
	var f protectFlags
	c := &cobra.Command{
		Use:   "unprotect TYPE/NAME ... | TYPE NAME ... | TYPE -l LABELS | -f FILE",
		Short: "Remove the protection of objects",
		Long: `Removes the protection that "coppice protect" has set. If the server has a default mode for the
resource ("coppice up --protect"), the object gets the label coppice.dev/protect=none, which
lifts the default from this object; "coppice protect" gives it a mode again. With --of, it
removes only the named objects from the list of outlived ones; the protection ends with the
last one.`,
		Example: `  # The volume claim may be deleted again
  coppice unprotect pvc/data

  # The database no longer waits for this Deployment
  coppice unprotect statefulset/db --of deployment/shop`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, args []string) error { return unprotect(c.Context(), &f, args, s) },
	}
	f.add(c)
	c.Flags().StringArrayVar(&f.of, "of", nil, "object that is no longer outlived, as for coppice protect; may be repeated")
	return c
}

func modeNames() []string {
	var names []string
	for _, m := range protection.Modes() {
		names = append(names, string(m))
	}
	return names
}

// checkMode completes and checks the mode.
func (f *protectFlags) checkMode() (protection.Mode, error) {
	if f.mode == "" {
		f.mode = string(protection.Always)
		if len(f.of) > 0 {
			f.mode = string(protection.Outlives)
		}
	}
	mode, err := protection.ParseMode(f.mode)
	switch {
	case err != nil:
		return "", usageError{fmt.Errorf("--mode: %w", err)}
	case mode != protection.Outlives && len(f.of) > 0:
		return "", usageError{fmt.Errorf("--of is for --mode=outlives, not for %s", mode)}
	}
	return mode, nil
}

func protect(ctx context.Context, f *protectFlags, args []string, s Streams) error {
	mode, err := f.checkMode()
	if err != nil {
		return err
	}
	w, err := f.begin(ctx, args, s)
	if err != nil {
		return err
	}
	for _, o := range w.outlived {
		w.noteMissing(o)
	}
	w.checks = true
	err = w.each(func(mapping *meta.RESTMapping, m metav1.Object) (protection.Protection, error) {
		if isNamed(w.outlived, mapping, m) {
			return protection.Protection{}, errors.New("--of names the object itself: its deletion would never be allowed")
		}
		if m.GetDeletionTimestamp() != nil {
			terminal.Fprintf(s.Err, "%s is being deleted already: its protection does not take that back\n", m.GetName())
		}
		if mode != protection.Outlives {
			return protection.New(string(mode), ""), nil
		}
		before, _ := protection.Of(m)
		if len(before.Outlives)+len(w.outlived) == 0 {
			return protection.Protection{}, errors.New("it outlives no object yet: name one with --of")
		}
		return outliving(slices.Concat(before.Outlives, w.outlived))
	})
	if len(w.done) > 0 && ctx.Err() == nil {
		w.warnUnenforced(ctx)
	}
	return errors.Join(err, w.print())
}

func unprotect(ctx context.Context, f *protectFlags, args []string, s Streams) error {
	w, err := f.begin(ctx, args, s)
	if err != nil {
		return err
	}
	defaults, err := w.defaults(ctx)
	if err != nil {
		return err
	}
	err = w.each(func(mapping *meta.RESTMapping, m metav1.Object) (protection.Protection, error) {
		before, _ := protection.Of(m)
		resource, _ := builtin.CanonicalOf(mapping.Resource.GroupResource())
		_, hasDefault := defaults[resource]
		switch {
		case hasDefault && len(w.outlived) == 0:
			return protection.Protection{Label: protection.None}, nil
		case len(w.outlived) == 0:
			return protection.Protection{}, nil
		}
		remaining := slices.DeleteFunc(slices.Clone(before.Outlives), func(o protection.Outlived) bool {
			return slices.ContainsFunc(w.outlived, func(other protection.Outlived) bool { return same(o, other, m.GetNamespace()) })
		})
		switch {
		case len(remaining) == len(before.Outlives):
			return before, nil
		case len(remaining) == 0:
			return protection.Protection{}, nil
		}
		return outliving(remaining)
	})
	return errors.Join(err, w.print())
}

// same reports whether two entries name the same object. It ignores the version, which is only a hint.
func same(a, b protection.Outlived, namespace string) bool {
	for _, o := range []*protection.Outlived{&a, &b} {
		if o.Namespace == "" && o.Finalizer == "" {
			o.Namespace = namespace
		}
		o.APIVersion = o.GroupVersionKind().Group
	}
	return a == b
}

func outliving(outlived []protection.Outlived) (protection.Protection, error) {
	annotation, err := protection.FormatOutlives(outlived)
	if err != nil {
		return protection.Protection{}, err
	}
	return protection.New(string(protection.Outlives), annotation), nil
}

// protectedObject is an object with its protection.
type protectedObject struct {
	Resource  string                `json:"resource"` // deployments.apps
	Namespace string                `json:"namespace,omitempty"`
	Name      string                `json:"name"`
	Mode      string                `json:"mode,omitempty"` // the value of the label; empty if it is not protected
	Outlives  []protection.Outlived `json:"outlives,omitempty"`
	Invalid   string                `json:"invalid,omitempty"` // the reason why it is protected as with always
	// Unchecked is the reason why its entries are not looked up: they all count as existing objects.
	Unchecked string `json:"unchecked,omitempty"`
	Changed   bool   `json:"changed,omitempty"` // this command has changed it
}

func (p protectedObject) String() string {
	text := p.Resource + "/" + p.Name
	switch {
	case p.Mode == protection.None && p.Changed:
		return text + " no longer protected, although its resource has a default mode"
	case p.Mode == "" && p.Changed:
		return text + " no longer protected"
	case p.Mode == "", p.Mode == protection.None:
		return text + " is not protected"
	}
	text += " protected: " + p.Mode
	if len(p.Outlives) > 0 {
		text += " " + outlivedBy(p.Outlives)
	}
	if !p.Changed {
		text += " (unchanged)"
	}
	return text
}

func outlivedBy(outlived []protection.Outlived) string {
	var names []string
	for _, o := range outlived {
		names = append(names, o.String())
	}
	return strings.Join(names, ", ")
}

// protecting changes the protection of objects, one after the other.
type protecting struct {
	// writes does not end with ctx: a write that was cancelled may have been made all the same.
	ctx, writes context.Context //nolint:containedctx // of one command

	flags    *protectFlags
	args     []string
	client   metadata.Interface
	mapper   meta.RESTMapper
	outlived []protection.Outlived
	s        Streams

	checks   bool // the server checks all entries
	warnings *serverWarnings

	done []protectedObject
}

// begin checks the command line and connects.
func (f *protectFlags) begin(ctx context.Context, args []string, s Streams) (*protecting, error) {
	if err := checkFormat(f.output); err != nil {
		return nil, err
	}
	if err := f.target.check(args, f.cluster.allNamespaces); err != nil {
		return nil, usageError{err}
	}
	config, err := f.cluster.config()
	if err != nil {
		return nil, err
	}
	w := &protecting{ctx: ctx, writes: context.WithoutCancel(ctx), flags: f, args: args, s: s, warnings: &serverWarnings{s: s}}
	config = rest.CopyConfig(config)
	config.WarningHandlerWithContext = w.warnings
	if w.client, err = metadata.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make a client for metadata: %w", err)
	}
	if w.mapper, err = f.cluster.kube.ToRESTMapper(); err != nil {
		return nil, fmt.Errorf("read the resources of the server: %w", err)
	}
	for _, of := range f.of {
		other, err := w.parseOther(of)
		if err != nil {
			return nil, usageError{fmt.Errorf("--of %s: %w", of, err)}
		}
		w.outlived = append(w.outlived, other)
	}
	return w, nil
}

// parseOther parses a value of --of.
func (w *protecting) parseOther(of string) (protection.Outlived, error) {
	kind, name, _ := strings.Cut(of, "/")
	if name == "" {
		return protection.Outlived{}, errors.New("write TYPE/NAME, TYPE/NAMESPACE/NAME or finalizer/NAME")
	}
	if kind == "finalizer" {
		return protection.Outlived{Finalizer: name}, nil
	}
	mapping, err := mappingOf(w.mapper, kind)
	if err != nil {
		return protection.Outlived{}, err
	}
	other := protection.Outlived{Name: name}
	other.APIVersion, other.Kind = mapping.GroupVersionKind.ToAPIVersionAndKind()
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return other, nil
	}
	if other.Namespace, _, err = w.flags.cluster.kube.ToRawKubeConfigLoader().Namespace(); err != nil {
		return other, fmt.Errorf("find the current namespace: %w", err)
	}
	if namespace, rest, isThere := strings.Cut(name, "/"); isThere {
		other.Namespace, other.Name = namespace, rest
	}
	return other, nil
}

// noteMissing notes on stderr that an object to outlive does not exist: its name may be mistyped.
func (w *protecting) noteMissing(o protection.Outlived) {
	kind := o.GroupVersionKind()
	mapping, err := w.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if o.Finalizer != "" || err != nil {
		return
	}
	_, err = w.client.Resource(mapping.Resource).Namespace(o.Namespace).Get(w.ctx, o.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		terminal.Fprintf(w.s.Err, "%s does not exist: it protects no object until it is created\n", o)
	}
}

// changing returns the new protection of an object.
type changing func(mapping *meta.RESTMapping, m metav1.Object) (protection.Protection, error)

// isNamed reports whether an object is among the outlived ones.
func isNamed(outlived []protection.Outlived, mapping *meta.RESTMapping, m metav1.Object) bool {
	self := protection.Outlived{Namespace: m.GetNamespace(), Name: m.GetName()}
	self.APIVersion, self.Kind = mapping.GroupVersionKind.ToAPIVersionAndKind()
	return slices.ContainsFunc(outlived, func(o protection.Outlived) bool { return same(o, self, m.GetNamespace()) })
}

// each gives the objects the protection that change returns. A protection without a label removes it.
func (w *protecting) each(change changing) error {
	var failed error
	err := w.flags.target.visit(&w.flags.cluster, w.args, w.s.Err, func(mapping *meta.RESTMapping, m metav1.Object) error {
		done, err := w.write(mapping, m, change)
		if err != nil {
			failed = fmt.Errorf("%s/%s: %w", mapping.Resource.GroupResource(), m.GetName(), err)
			return failed
		}
		w.done = append(w.done, done)
		return nil
	})
	if failed != nil {
		return failed // not err: the objects were found
	}
	return err
}

// write changes one object. If it has changed since it was read, it is read again.
func (w *protecting) write(mapping *meta.RESTMapping, m metav1.Object, change changing) (protectedObject, error) {
	objects, uid := w.client.Resource(mapping.Resource).Namespace(m.GetNamespace()), m.GetUID()
	for range protectTries {
		if w.ctx.Err() != nil {
			return protectedObject{}, fmt.Errorf("interrupted before its turn: %w", w.ctx.Err())
		}
		next, err := change(mapping, m)
		if err != nil {
			return protectedObject{}, err
		}
		done := protectedOf(mapping.Resource.GroupResource().String(), m, next)
		if done.Changed, err = w.apply(objects, m, next); !refusal.ServerAnswers(err, apierrors.IsConflict) {
			return done, err
		}
		now, err := objects.Get(w.ctx, m.GetName(), metav1.GetOptions{})
		switch {
		case err != nil:
			return done, err
		case now.UID != uid:
			return done, errors.New("it was deleted and created again meanwhile; check it, and run the command again")
		}
		m = now
	}
	return protectedObject{}, fmt.Errorf("it has changed %d times while it was being labelled; try again", protectTries)
}

func protectedOf(resource string, m metav1.Object, p protection.Protection) protectedObject {
	return protectedObject{Resource: resource, Namespace: m.GetNamespace(), Name: m.GetName(), Mode: p.Label, Outlives: p.Outlives, Invalid: p.Invalid, Unchecked: p.Unchecked}
}

// patchOf returns the merge patch that gives an object a protection, on the condition that the object has not changed
// since it was read; nil if it already has that protection. checked is the value of the annotation that marks its
// entries as checked; an empty value leaves the annotation as it is.
func patchOf(m metav1.Object, p protection.Protection, checked string) ([]byte, error) {
	var label, annotation any
	if p.Label != "" {
		label = p.Label
	}
	if len(p.Outlives) > 0 {
		text, err := protection.FormatOutlives(p.Outlives)
		if err != nil {
			return nil, err
		}
		annotation = text
	}
	annotations := map[string]any{protection.Annotation: annotation}
	if checked != "" {
		annotations[protection.Checked] = checked
	} else if m.GetAnnotations()[protection.Checked] != "" && annotation == nil {
		annotations[protection.Checked] = nil
	}
	isThere := isValue(m.GetLabels(), protection.Label, label)
	for key, value := range annotations {
		isThere = isThere && isValue(m.GetAnnotations(), key, value)
	}
	if isThere {
		return nil, nil
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": m.GetUID(), "resourceVersion": m.GetResourceVersion(),
		"labels": map[string]any{protection.Label: label}, "annotations": annotations,
	}})
}

// isValue reports whether a key has the wanted value; nil stands for a missing key.
func isValue(all map[string]string, key string, want any) bool {
	value, there := all[key]
	if !there {
		return want == nil
	}
	return value == want
}

// print prints the objects with their protection.
func (w *protecting) print() error {
	if w.flags.output != "table" {
		return writeAs(w.s.Out, w.flags.output, map[string]any{"items": slices.Concat([]protectedObject{}, w.done)})
	}
	for _, done := range w.done {
		terminal.Fprintf(w.s.Out, "%s\n", done)
	}
	return nil
}
