package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize/english"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/audit"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
)

// fieldManager is the field manager of the tools' patches.
const fieldManager = "coppice-audit"

// fix prints the references that it would remove, asks the user, and removes them. It returns the repaired findings.
// An object that has changed since it was read stays unchanged. If ctx ends, the write under way is completed.
func fix(ctx context.Context, config *rest.Config, inv *inventory.Inventory, fixes []audit.Fix, confirmed bool, s Streams) (audit.Baseline, error) { //nolint:revive // --yes
	if len(fixes) == 0 {
		fmt.Fprintln(s.Err, "no finding can be repaired automatically")
		return audit.Baseline{}, nil
	}
	for _, f := range fixes {
		for i := range f.Removes {
			terminal.Fprintf(s.Err, "remove from %s%s the reference to %s %s: %s\n", f.Object, inNamespace(f.Object.Namespace), f.Removes[i].Owner.Kind, f.Removes[i].Owner.Name, f.Removes[i].Message)
		}
	}
	if !confirmed && !confirm(ctx, s) {
		return audit.Baseline{}, errors.New("not confirmed: nothing was changed")
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return audit.Baseline{}, fmt.Errorf("make a client for metadata: %w", err)
	}
	var done audit.Report
	var failures []error
	repaired := 0
	for n, f := range fixes {
		if ctx.Err() != nil {
			failures = append(failures, fmt.Errorf("interrupted: %s", english.Plural(len(fixes)-n, "object was not looked at", "objects were not looked at")))
			break
		}
		if err := apply(ctx, client, inv, f); err != nil {
			failures = append(failures, fmt.Errorf("%s%s is unchanged: %w", f.Object, inNamespace(f.Object.Namespace), err))
			continue
		}
		repaired++
		done.Findings = append(done.Findings, f.Removes...)
	}
	terminal.Fprintf(s.Err, "%d of %d objects repaired\n", repaired, len(fixes))
	return done.Baseline(), errors.Join(failures...)
}

func inNamespace(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in namespace " + namespace
}

// confirm asks the user. Only "yes" confirms; the end of the input or of ctx does not.
func confirm(ctx context.Context, s Streams) bool {
	fmt.Fprint(s.Err, "Remove these references? Type yes: ")
	if s.In == nil {
		return false
	}
	answer := make(chan bool, 1)
	go func() { // a read of the terminal does not end with ctx
		line, err := bufio.NewReader(s.In).ReadString('\n')
		answer <- strings.TrimSpace(line) == "yes" && (err == nil || errors.Is(err, io.EOF))
	}()
	select {
	case yes := <-answer:
		return yes
	case <-ctx.Done():
		return false
	}
}

// apply verifies that the owners whose references a fix removes do not exist, and sends the fix.
func apply(ctx context.Context, client metadata.Interface, inv *inventory.Inventory, f audit.Fix) error {
	for _, claim := range f.Absent {
		if err := verifyAbsent(ctx, client, inv, claim); err != nil {
			return err
		}
	}
	patch, err := f.Patch()
	if err != nil {
		return err
	}
	resource := schema.GroupVersionResource{Group: f.Object.Group, Version: f.Object.Version, Resource: f.Object.Resource}
	// A write that was cancelled may have been made all the same, and the report would be wrong.
	_, err = client.Resource(resource).Namespace(f.Object.Namespace).Patch(context.WithoutCancel(ctx), f.Object.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if refusal.ServerAnswers(err, apierrors.IsInvalid) || refusal.ServerAnswers(err, apierrors.IsConflict) {
		return fmt.Errorf("it has changed since it was read: %w", err)
	}
	return err
}

// verifyAbsent returns an error unless the server answers that an owner does not exist, or that another object has
// its name: a list does not prove absence (R3).
func verifyAbsent(ctx context.Context, client metadata.Interface, inv *inventory.Inventory, claim ownership.Claim) error {
	r := inv.Resource(claim.Kind)
	if r == nil {
		return fmt.Errorf("no API serves %s", claim.Kind)
	}
	owner, err := client.Resource(r.GroupVersionResource).Namespace(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("check whether %s exists: %w", claim, err)
	case ownership.UID(owner.UID) == claim.UID:
		return fmt.Errorf("%s exists", claim)
	default:
		return nil
	}
}
