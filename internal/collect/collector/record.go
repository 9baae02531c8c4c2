package collector

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/auditreason"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/collect/storybook"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// maxText bounds texts that contain names chosen by users, in bytes.
const maxText = 1024

// record records a request that has changed an object, or may have: err is its error.
func (c *Collector) record(r report.Record, err error) {
	switch {
	case err == nil:
		r.Answer = report.AnswerDone
		c.state.accepted(ownership.UID(r.Object.UID))
	case client.IsRefusal(err), pace.IsNotSent(err):
		return
	default:
		r.Answer, r.Error = report.AnswerUnknown, ownership.Excerpt(err.Error(), maxText)
		r.Object.NamespaceUID = report.UID(c.state.homeAt(r.Object.Namespace, r.Object.ResourceVersion))
	}
	r.Time = c.clock.Now()
	c.journal.add(r)
	if c.config.Stories != nil && (r.Action == report.ActionDetach || r.Action == report.ActionOrphan) {
		recordStayed(c.config.Stories, &r)
	}
}

// recordStayed records in the stories that an object stays although it has lost owners.
func recordStayed(b *storybook.Book, r *report.Record) {
	var keptBy, lost []story.Ref
	for i := range r.Owners {
		o := &r.Owners[i]
		owner := story.Ref{
			Kind: o.Kind, Namespace: o.Namespace, NamespaceUID: ownership.UID(r.NamespaceUID(o.Namespace)), Name: o.Name, UID: ownership.UID(o.UID),
		}
		if o.Standing == verdict.Solid.String() && r.Action == report.ActionDetach {
			keptBy = append(keptBy, owner)
		} else {
			lost = append(lost, owner)
		}
	}
	object := story.Ref{
		Kind: r.Object.Kind, Namespace: r.Object.Namespace, NamespaceUID: ownership.UID(r.Object.NamespaceUID), Name: r.Object.Name,
		UID: ownership.UID(r.Object.UID),
	}
	b.Stayed(object, keptBy, lost, r.Time)
}

// recordOf returns the record of a decision, without the answer. It is called before the request: the observations up
// to then determine the namespace of the object that the request finds.
func (c *Collector) recordOf(f verdict.Facts, d verdict.Decision) report.Record {
	r := report.Record{Action: actionOf(d), Object: c.recorded(f.Object), Decision: ownership.Excerpt(d.String(), maxText), Policy: metav1.DeletionPropagation(policyOf(f.Object, d))}
	r.Owners, r.MoreOwners = auditreason.OwnersOf(f.Owners)
	r.MoreOwners += f.Object.MoreOwners
	return r
}

// reasonOf returns the reason that is passed to the server's audit log.
func reasonOf(r *report.Record) auditreason.Reason {
	return auditreason.Reason{Decision: r.Decision, Policy: r.Policy, Owners: r.Owners, MoreOwners: r.MoreOwners}
}

// actionOf returns the action of a decision; empty if it changes nothing.
func actionOf(d verdict.Decision) report.Action {
	switch d.(type) {
	case verdict.Keep, verdict.Verify, verdict.Reread, verdict.Park, verdict.Await:
		return ""
	case verdict.Detach:
		return report.ActionDetach
	case verdict.Unblock:
		return report.ActionUnblock
	case verdict.Delete:
		return report.ActionDelete
	case verdict.Disown:
		return report.ActionOrphan
	case verdict.RemoveFinalizer:
		return report.ActionRemoveFinalizer
	}
	return ""
}

// policyOf returns the propagation policy of a deletion, or of the owner's deletion that a decision is part of.
func policyOf(o ownership.Object, d verdict.Decision) verdict.Propagation {
	if d, ok := d.(verdict.Delete); ok {
		return d.Propagation
	}
	switch o.Phase {
	case ownership.Orphaning:
		return verdict.Orphan
	case ownership.Foreground:
		return verdict.Foreground
	default:
		return ""
	}
}

// recordOfOrphan returns the record of a dependent that is detached from an owner, as recordOf does.
func (c *Collector) recordOfOrphan(dependent, owner ownership.Object) report.Record {
	revision, _ := client.Revision(owner.ResourceVersion)
	return report.Record{
		Action: report.ActionOrphan, Object: c.recorded(dependent), Policy: metav1.DeletePropagationOrphan,
		Decision: ownership.Excerpt("detach from "+client.RefOf(owner).String()+", which orphans its dependents", maxText),
		Owners: []report.Owner{{
			Kind: owner.Kind.String(), Namespace: owner.Namespace, Name: owner.Name, UID: report.UID(owner.UID),
			Standing: owner.Phase.String(), Evidence: ownership.Observation.String(), Revision: revision,
		}},
	}
}

func (c *Collector) recorded(o ownership.Object) report.RecordedObject {
	return report.RecordedObject{
		Kind: o.Kind.String(), Namespace: o.Namespace, NamespaceUID: report.UID(c.state.homeNow(o.Namespace)), Name: o.Name, UID: report.UID(o.UID),
		ResourceVersion: o.ResourceVersion,
	}
}
