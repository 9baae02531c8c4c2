package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// acceptedLack is the flag --backup-without: the resources of which a backup may lack objects, if they cannot be read. It
// is not a part of the digest that confirms a deletion: --backup is none either, and the flag allows no other deletion.
type acceptedLack []string

// forbiddenResources is the value that stands for all resources that the user may not list. Their number depends on the
// definitions in the cluster, so that no user could name them one by one. An outage is none of them: each has to be named.
const forbiddenResources = "forbidden"

func (l *acceptedLack) add(c *cobra.Command) {
	c.Flags().StringSliceVar((*[]string)(l), "backup-without", nil,
		"unreadable resources that the backup may lack: names, or forbidden for all you may not list")
	completeWith(c, "backup-without", forbiddenResources)
}

// check returns an error if the flag has no use: with is the flag that makes backups, and value its value.
func (l acceptedLack) check(with, value string) error {
	switch {
	case len(l) > 0 && value == "":
		return usageError{fmt.Errorf("--backup-without is for --%s", with)}
	case slices.Contains(l, ""):
		return usageError{errors.New("--backup-without has an empty name: name resources as the error about the backup does")}
	}
	return nil
}

// split returns the unseen resources that the user accepts, and the others.
func (l acceptedLack) split(unseen []preview.UnseenReport) (accepted, open []preview.UnseenReport) {
	for _, u := range unseen {
		if u.Forbidden && slices.Contains(l, forbiddenResources) || u.Resource != "" && slices.Contains(l, u.Resource) {
			accepted = append(accepted, u)
		} else {
			open = append(open, u)
		}
	}
	return accepted, open
}

// errOpen returns an error about the resources that the user has not accepted, with the flag that accepts them.
func (l acceptedLack) errOpen(open []preview.UnseenReport) error {
	if len(open) == 0 {
		return nil
	}
	accept := "or accept a backup without their objects, with --backup-without=" + strings.Join(l.with(open), ",")
	if slices.ContainsFunc(open, func(u preview.UnseenReport) bool { return u.Resource == "" && !u.Forbidden }) {
		accept = "--backup-without cannot accept that so many do not answer" // the preview does not name the rest
	}
	return fmt.Errorf("the backup may lack objects that the deletion removes, because these resources cannot be read: %s; "+
		"get the right to list them, or repair the API that does not answer; %s; then preview the deletion again, into another file",
		inBrief(saysOf(open)), accept)
}

// inBrief returns lines as one, up to a bound.
func inBrief(lines []string) string {
	brief := make([]string, 0, maxUnread+1)
	for n, line := range lines {
		if n == maxUnread {
			brief = append(brief, fmt.Sprintf("and %d more", len(lines)-n))
			break
		}
		brief = append(brief, oneLineOf(line))
	}
	return strings.Join(brief, "; ")
}

// with returns the value of the flag that also accepts some resources.
func (l acceptedLack) with(open []preview.UnseenReport) []string {
	all := slices.Clone(l)
	for _, u := range open {
		name := u.Resource
		if u.Forbidden {
			name = forbiddenResources
		}
		if name != "" && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// saysOf returns the descriptions of unseen resources.
func saysOf(unseen []preview.UnseenReport) []string {
	says := make([]string, 0, len(unseen))
	for _, u := range unseen {
		says = append(says, u.Says)
	}
	return says
}
