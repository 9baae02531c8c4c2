package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/collect/auditreason"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// reasonAnnotation is the annotation in which our API server gives the collector's reason.
const reasonAnnotation = "collector.coppice.dev/reason"

// event has the relevant fields of an event of audit.k8s.io/v1.
type event struct {
	APIVersion       string `json:"apiVersion"`
	Stage            string `json:"stage"`
	RequestURI       string `json:"requestURI"`
	Verb             string `json:"verb"`
	User             user   `json:"user"`
	ImpersonatedUser user   `json:"impersonatedUser"`
	UserAgent        string `json:"userAgent"`
	ObjectRef        *struct {
		Resource    string        `json:"resource"`
		Namespace   string        `json:"namespace"`
		Name        string        `json:"name"`
		UID         ownership.UID `json:"uid"`
		APIGroup    string        `json:"apiGroup"`
		Subresource string        `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	// RequestObject is the body of the request, at the level Request: any object or patch, or the options of a DELETE.
	RequestObject json.RawMessage `json:"requestObject"`
	// ResponseObject is the object, or a Status that names it, at the level RequestResponse.
	ResponseObject struct {
		Metadata struct {
			UID ownership.UID `json:"uid"`
		} `json:"metadata"`
		Details struct {
			UID ownership.UID `json:"uid"`
		} `json:"details"`
	} `json:"responseObject"`
	StageTimestamp time.Time         `json:"stageTimestamp"`
	Annotations    map[string]string `json:"annotations"`
}

// options are the options of a DELETE; those of an eviction are in deleteOptions.
type options struct {
	PropagationPolicy string   `json:"propagationPolicy"`
	OrphanDependents  *bool    `json:"orphanDependents"`
	DryRun            []string `json:"dryRun"`
	Preconditions     struct {
		UID ownership.UID `json:"uid"`
	} `json:"preconditions"`
	DeleteOptions *options `json:"deleteOptions"`
}

type user struct {
	Username string `json:"username"`
}

// isRead reports whether a line is about a read request, as most lines of a log are. It looks for the verb only in lines
// that have one of the marks, and decodes no more than the fields before the verb. The marks alone prove nothing: objects
// in the line may have them, as labels or as requests for a review.
func isRead(line []byte) bool {
	for _, mark := range []string{`"verb":"get"`, `"verb":"list"`, `"verb":"watch"`} {
		if bytes.Contains(line, []byte(mark)) {
			verb := verbOf(line)
			return verb == "get" || verb == "list" || verb == "watch"
		}
	}
	return false
}

// verbOf returns the verb of an event; empty if the line has none, or is no object.
func verbOf(line []byte) string {
	decoder := json.NewDecoder(bytes.NewReader(line))
	depth, isKey, isVerb := 0, false, false
	for {
		token, err := decoder.Token()
		if err != nil {
			return ""
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
			isKey, isVerb = depth == 1, false
			continue
		case json.Delim('}'), json.Delim(']'):
			depth--
			isKey = depth == 1
			continue
		}
		switch text, _ := token.(string); {
		case depth != 1:
		case isVerb:
			return text
		case isKey:
			isKey, isVerb = false, text == "verb"
		default:
			isKey = true
		}
	}
}

// AddLine adds a line of an audit log: an event of audit.k8s.io/v1, as JSON. Lines must be in the order of the log.
// It returns an error for a line that is not such an event.
func (l *Log) AddLine(line []byte) error {
	if isRead(line) {
		return nil
	}
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		return fmt.Errorf("no event of an audit log: %w", err)
	}
	if e.APIVersion != "audit.k8s.io/v1" {
		return fmt.Errorf("no event of audit.k8s.io/v1, but of %q", e.APIVersion)
	}
	if e.Stage != "ResponseComplete" || e.ObjectRef == nil || e.ResponseStatus.Code < 200 || e.ResponseStatus.Code > 299 {
		return nil
	}
	options, err := e.options()
	if err != nil {
		return fmt.Errorf("no event of an audit log: the options of the deletion: %w", err)
	}
	if len(options.DryRun) > 0 || len(e.query()["dryRun"]) > 0 {
		return nil // it has changed nothing
	}
	at := place{schema.GroupResource{Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource}, e.ObjectRef.Namespace, e.ObjectRef.Name}
	if at.resource == (schema.GroupResource{Resource: "namespaces"}) {
		at.namespace = "" // the audit log has the namespace's own name as its namespace
	}
	switch {
	case e.Verb == "delete" && e.ObjectRef.Subresource == "":
		l.add(e.deletion(at, options, "deleted", l))
	case e.isEviction():
		l.add(e.deletion(at, options, "evicted", l))
	case e.Verb == "deletecollection":
		at.name = ""
		l.collections = append(l.collections, e.deletion(at, options, "deleted with others of its kind", l))
	case e.Verb == "update" || e.Verb == "patch":
		if before := l.deletions[at]; len(before) > 0 && len(l.renewals[at]) == l.lives(before[len(before)-1]) {
			before[len(before)-1].lastWrite = &write{e.by(), e.StageTimestamp}
		}
	case e.Verb == "create" && e.ObjectRef.Subresource == "" && len(l.deletions[at]) > 0:
		l.renewals[at] = append(l.renewals[at], e.StageTimestamp)
	}
	return nil
}

// by returns the user who made the request; the impersonated one, if there is one.
func (e *event) by() string {
	if e.ImpersonatedUser.Username != "" {
		return e.ImpersonatedUser.Username
	}
	return e.User.Username
}

func (e *event) isEviction() bool {
	return e.Verb == "create" && e.ObjectRef.Subresource == "eviction"
}

// options returns the options of a deletion or of an eviction; empty for other requests and at a lower audit level.
func (e *event) options() (options, error) {
	var o options
	if len(e.RequestObject) == 0 || !e.isEviction() && e.Verb != "delete" && e.Verb != "deletecollection" {
		return o, nil
	}
	err := json.Unmarshal(e.RequestObject, &o)
	if e.isEviction() {
		if o.DeleteOptions == nil {
			return options{}, err
		}
		o = *o.DeleteOptions
	}
	return o, err
}

// query returns the parameters of the request; none if its URI is invalid.
func (e *event) query() url.Values {
	at, err := url.Parse(e.RequestURI)
	if err != nil {
		return nil
	}
	return at.Query()
}

func (e *event) deletion(at place, o options, did string, l *Log) *deletion {
	d := &deletion{place: at, uid: e.uid(o), at: e.StageTimestamp, source: AuditLog, by: e.by(), agent: e.UserAgent, did: did, policy: e.policy(o)}
	if text := e.Annotations[reasonAnnotation]; text != "" {
		var reason auditreason.Reason
		if json.Unmarshal([]byte(text), &reason) == nil {
			d.reason, d.policy = &reason, string(reason.Policy)
			l.learn(&reason)
		}
	}
	return d
}

// uid returns the object's UID, if the audit level includes it.
func (e *event) uid(o options) ownership.UID {
	for _, uid := range []ownership.UID{e.ObjectRef.UID, o.Preconditions.UID, e.ResponseObject.Details.UID, e.ResponseObject.Metadata.UID} {
		if uid != "" {
			return uid
		}
	}
	return ""
}

// policy returns the propagation policy in the body or in the query of the request.
func (e *event) policy(o options) string {
	orphans, query := o.OrphanDependents, e.query()
	if policy := cmp.Or(o.PropagationPolicy, query.Get("propagationPolicy")); policy != "" {
		return policy
	}
	if text := query.Get("orphanDependents"); text != "" {
		orphans = new(text == "true")
	}
	switch {
	case orphans == nil:
		return ""
	case *orphans:
		return "Orphan"
	default:
		return "Background"
	}
}
