// Package apiservice has the rule about a group version of the API whose server, which an APIService names, does not
// answer: which owners may have dependents there that nobody can see (R15). It is pure: the barrier of the collector
// holds owners by it, and the preview plays that.
package apiservice

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

const (
	// firstCheck bounds the time from the creation of an APIService to the first check of its service.
	firstCheck = 30 * time.Second
	// maxSkew bounds the difference between the clocks of API servers: of the one that notes the begin of an outage, and
	// the one that creates an owner.
	maxSkew = time.Minute
	// maxWhy bounds the reason of an outage, in bytes.
	maxWhy = 256
)

// Outage is the time in which an API server behind the API server, of an APIService, has not answered. The zero Outage
// stands for one of which nothing is known.
type Outage struct {
	// Since is when the APIService became unavailable.
	Since time.Time
	// NeverUp is true if that was when the APIService was created.
	NeverUp bool
	// Why is the reason, in the words of the API server.
	Why string
}

// NameOf returns the name of the APIService of a group version: "v1.metrics.example.com".
func NameOf(groupVersion string) string {
	gv, err := schema.ParseGroupVersion(groupVersion)
	if err != nil {
		return groupVersion
	}
	return gv.Version + "." + gv.Group
}

// PathOf returns the path of the APIService of a group version.
func PathOf(groupVersion string) string {
	return "/apis/apiregistration.k8s.io/v1/apiservices/" + NameOf(groupVersion)
}

// Read returns the outage of an APIService in JSON. Its condition Available has the time of the last change.
func Read(body []byte) (Outage, error) {
	var s struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Status   struct {
			Conditions []struct {
				Type               string      `json:"type"`
				Status             string      `json:"status"`
				LastTransitionTime metav1.Time `json:"lastTransitionTime"`
				Message            string      `json:"message"`
			} `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(body, &s); err != nil {
		return Outage{}, fmt.Errorf("decode an APIService: %w", err)
	}
	for _, c := range s.Status.Conditions {
		if c.Type == "Available" && c.Status == "False" && !c.LastTransitionTime.IsZero() {
			return Outage{
				Since:   c.LastTransitionTime.Time,
				NeverUp: !c.LastTransitionTime.After(s.Metadata.CreationTimestamp.Add(firstCheck)),
				Why:     ownership.Excerpt(c.Message, maxWhy),
			}, nil
		}
	}
	return Outage{}, nil
}

// IsDated reports whether the creation of an owner may show that it has no dependents there.
func (o Outage) IsDated() bool { return !o.Since.IsZero() }

// Holds reports whether the group version may have dependents of an owner, so that a finalizer of the collector stays.
// created is the creation of the owner; zero if it is unknown.
func (o Outage) Holds(created time.Time, finalizer string) bool {
	switch {
	case !o.IsDated():
		return true
	case !created.IsZero() && created.After(o.Since.Add(maxSkew)):
		return false // nothing could be created there since its UID exists
	case o.NeverUp && finalizer == ownership.FinalizerForeground:
		// Only an earlier APIService could have served dependents. They are deleted when the group answers, like all
		// objects whose owner is absent. After an orphan deletion, that would be wrong.
		return false
	}
	return true
}

// Says returns the reason why an owner is held, and the way to end that.
func (o Outage) Says(groupVersion string) string {
	const unknown = "its discovery fails, so its resources are unknown"
	if !o.IsDated() {
		return unknown
	}
	why := unknown + "; APIService " + NameOf(groupVersion) + " has been unavailable since " + o.Since.UTC().Format(time.RFC3339)
	if o.Why != "" {
		why += " (" + o.Why + ")"
	}
	return why + ": bring back its service, or delete the APIService if nothing needs it"
}
