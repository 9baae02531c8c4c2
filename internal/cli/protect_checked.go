package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
)

// serverWarnings keeps the warnings of the server. It is not safe for concurrent requests.
type serverWarnings struct {
	s       Streams
	new     []string
	printed []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *serverWarnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.new = append(w.new, text)
}

// take returns the warnings since its last call.
func (w *serverWarnings) take() []string {
	taken := w.new
	w.new = nil
	return taken
}

// print prints warnings, each once.
func (w *serverWarnings) print(warnings []string) {
	for _, text := range warnings {
		if !slices.Contains(w.printed, text) {
			w.printed = append(w.printed, text)
			terminal.Fprintf(w.s.Err, "warning: %s\n", text)
		}
	}
}

// checkedValue returns the value of the annotation that tells a server with a webhook that all entries were checked;
// empty if no annotation is needed. It returns an error if the user may not read all objects in the entries. A dry
// run that changes the annotation makes the server check the entries, and its warning has the value.
func (w *protecting) checkedValue(objects metadata.ResourceInterface, m metav1.Object, p protection.Protection) (string, error) {
	if !w.checks || !p.NeedsLookup() {
		return "", nil
	}
	patch, err := patchOf(m, p, "?")
	if err != nil {
		return "", err
	}
	_, err = objects.Patch(w.ctx, m.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: protectManager, DryRun: []string{metav1.DryRunAll}})
	value := ""
	w.warnings.print(slices.DeleteFunc(w.warnings.take(), func(warning string) bool {
		value = cmp.Or(value, protection.CheckedValue(warning))
		return protection.CheckedValue(warning) != ""
	}))
	return value, err
}

// apply gives an object a protection, and reports whether that changed it.
func (w *protecting) apply(objects metadata.ResourceInterface, m metav1.Object, p protection.Protection) (changed bool, err error) {
	checked, unchecked := w.checkedValue(objects, m, p)
	patch, err := patchOf(m, p, checked)
	if err != nil || patch == nil {
		return false, errors.Join(err, unchecked)
	}
	if w.ctx.Err() != nil {
		return false, w.ctx.Err()
	}
	_, err = objects.Patch(w.writes, m.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: protectManager})
	w.warnings.print(w.warnings.take())
	return true, err
}
