package restriction

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/collector/reasons"
)

// patchLimit is how long a patch may be, in bytes: more than the library takes.
const patchLimit = 4 << 20

// ReasonAnnotation is the annotation in the audit log that says why an object was
// collected: a reasons.Reason, as JSON.
const ReasonAnnotation = "collector.coppice.dev/reason"

// Requests refuses the requests of confined users that are outside their envelope, and
// sees to it that they are answered with metadata. Who the user is and what the request
// is about has been found out before.
func Requests(next http.Handler, users *Users, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, known := genericrequest.UserFrom(r.Context())
		info, ok := genericrequest.RequestInfoFrom(r.Context())
		if !known || !ok || !info.IsResourceRequest {
			next.ServeHTTP(w, r)
			return
		}
		envelope, confined := users.envelope(u)
		if !confined {
			next.ServeHTTP(w, r)
			return
		}
		ctx := r.Context()
		r = r.Clone(ctx)
		if err := envelope.check(r, info); err != nil {
			resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
			err = apierrors.NewForbidden(resource, info.Name, fmt.Errorf("%s is confined: %w", u.GetName(), err))
			responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, r)
			return
		}
		if envelope.Explains && info.Verb == "delete" {
			audit.AddAuditAnnotation(ctx, ReasonAnnotation, reasonOf(r))
		}
		next.ServeHTTP(w, r)
	})
}

// reasonOf is what the collector says of a deletion.
func reasonOf(r *http.Request) string {
	reason := r.Header.Get(reasons.Header)
	if len(reason) > reasons.MaxLength || !json.Valid([]byte(reason)) {
		return `{"decision":"no reason was given"}`
	}
	return reason
}

// check tells why a request is outside the envelope. It narrows the request: what may be
// answered, and the body to what was looked at.
func (e Envelope) check(r *http.Request, info *genericrequest.RequestInfo) error {
	if e.ask != nil {
		return e.ask(r, info)
	}
	if info.Subresource != "" && !slices.Contains(e.Subresources, info.Resource+"/"+info.Subresource) {
		return fmt.Errorf("it has no use for %s/%s", info.Resource, info.Subresource)
	}
	if e.readsWhole(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}) {
		if info.Verb == "patch" && !slices.Contains(e.Reports, strings.TrimSuffix(info.Resource+"/"+info.Subresource, "/")) {
			return e.checkPatch(r)
		}
		return nil
	}
	if err := metadataSelector(r); err != nil {
		return err
	}
	switch info.Verb {
	case "create": // what is answered is what was sent
		return nil
	case "get", "list", "watch":
		accepted := metadataOnly(r.Header.Values("Accept"))
		if accepted == "" {
			return errors.New("it reads metadata only, so it has to ask for PartialObjectMetadata")
		}
		r.Header.Set("Accept", accepted)
		return nil
	case "delete":
		r.Header.Set("Accept", metadataAs("PartialObjectMetadata"))
		return nil
	case "deletecollection":
		r.Header.Set("Accept", metadataAs("PartialObjectMetadataList"))
		return nil
	case "patch":
		r.Header.Set("Accept", metadataAs("PartialObjectMetadata"))
		return e.checkPatch(r)
	default:
		return fmt.Errorf("it does not %s", info.Verb)
	}
}

func metadataAs(kind string) string {
	return "application/json;as=" + kind + ";g=" + metav1.GroupName + ";v=v1"
}

// metadataOnly is what is left of an Accept header when all but metadata is taken away.
// It is written anew: the server must not read it in another way.
func metadataOnly(header []string) string {
	var left []string
	for clause := range strings.SplitSeq(strings.Join(header, ","), ",") {
		media, params, err := mime.ParseMediaType(clause)
		if err != nil || params["g"] != metav1.GroupName || params["v"] != "v1" {
			continue
		}
		if as := params["as"]; as == "PartialObjectMetadata" || as == "PartialObjectMetadataList" {
			left = append(left, media+";as="+as+";g="+metav1.GroupName+";v=v1")
		}
	}
	return strings.Join(left, ",")
}

// metadataSelector: to select by a field is to ask what is in it.
func metadataSelector(r *http.Request) error {
	for _, text := range r.URL.Query()["fieldSelector"] {
		selector, err := fields.ParseSelector(text)
		if err != nil {
			return err
		}
		for _, requirement := range selector.Requirements() {
			if !strings.HasPrefix(requirement.Field, "metadata.") {
				return fmt.Errorf("it selects by metadata only, not by %s", requirement.Field)
			}
		}
	}
	return nil
}

// checkPatch: a patch has the one form that our controllers send (R12): it names nothing
// but metadata, and is conditioned on uid and resourceVersion. Other fields are not for
// guessing at, so they must not even be named.
func (e Envelope) checkPatch(r *http.Request) error {
	if !e.Patches {
		return errors.New("it does not patch")
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != string(types.MergePatchType) {
		return fmt.Errorf("it patches with %s only", types.MergePatchType)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, patchLimit))
	if err != nil {
		return fmt.Errorf("read the patch: %w", err)
	}
	var patch map[string]json.RawMessage
	if err := json.Unmarshal(body, &patch); err != nil {
		return fmt.Errorf("decode the patch: %w", err)
	}
	if len(patch) != 1 || patch["metadata"] == nil {
		return errors.New("it patches metadata only")
	}
	var metadata map[string]json.RawMessage
	if err := json.Unmarshal(patch["metadata"], &metadata); err != nil {
		return fmt.Errorf("decode the patch: %w", err)
	}
	for name := range metadata {
		if !slices.Contains([]string{"uid", "resourceVersion", "ownerReferences", "finalizers"}, name) {
			return fmt.Errorf("it does not patch metadata.%s", name)
		}
	}
	for _, name := range []string{"uid", "resourceVersion"} {
		var value string
		if err := json.Unmarshal(metadata[name], &value); err != nil || value == "" {
			return fmt.Errorf("it patches on condition of metadata.%s", name)
		}
	}
	// What was looked at is what is handled: written anew, a name cannot be there twice.
	narrow, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encode the patch: %w", err)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(narrow)), int64(len(narrow))
	return nil
}
