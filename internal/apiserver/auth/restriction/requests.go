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
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/collect/auditreason"
)

// maxPatch is the maximum length of a patch, in bytes: more than k8s.io/apiserver accepts.
const maxPatch = 4 << 20

// ReasonAnnotation is the annotation in the audit log with the reason why an object was
// collected, as JSON (package auditreason).
const ReasonAnnotation = "collector.coppice.dev/reason"

// noReason is recorded for a deletion by the collector that states no valid reason.
const noReason = `{"decision":"no reason was given"}`

// WithRestrictions is a filter that refuses requests that the user's restriction does not allow. It makes
// the server answer other requests with metadata if the user may read no more. It comes after
// authentication, and after the filter that parses the request.
func WithRestrictions(next http.Handler, restrictions *Restrictions, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, known := genericrequest.UserFrom(r.Context())
		info, ok := genericrequest.RequestInfoFrom(r.Context())
		if !known || !ok {
			next.ServeHTTP(w, r)
			return
		}
		restriction, restricted := restrictions.of(u)
		if !restricted || !info.IsResourceRequest && restriction.mayRead(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		if !info.IsResourceRequest {
			err := apierrors.NewForbidden(schema.GroupResource{}, "", refusal(u, fmt.Errorf("it cannot access the path %q", r.URL.Path)))
			responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{}, w, r)
			return
		}
		ctx := r.Context()
		r = r.Clone(ctx)
		if err := restriction.check(r, info); err != nil {
			resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
			err = apierrors.NewForbidden(resource, info.Name, refusal(u, err))
			responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, r)
			return
		}
		if restriction.StatesReason && info.Verb == "delete" {
			audit.AddAuditAnnotation(ctx, ReasonAnnotation, reasonOf(r))
		}
		next.ServeHTTP(w, r)
	})
}

// refusal returns the error that names the refused user and the reason.
func refusal(u user.Info, why error) error {
	return fmt.Errorf("user %q is restricted: %w", u.GetName(), why)
}

// reasonOf returns the reason that the collector gives for a deletion.
func reasonOf(r *http.Request) string {
	reason := r.Header.Get(auditreason.Header)
	if len(reason) > auditreason.MaxBytes || !json.Valid([]byte(reason)) {
		return noReason
	}
	return reason
}

// check returns an error if a request is refused. It narrows an allowed request: to the accepted media
// types that the user may read, and to the checked body.
func (allowed Restriction) check(r *http.Request, info *genericrequest.RequestInfo) error {
	a := attributesOf(r, info)
	if err := allowed.mayRequest(r.Context(), a); err != nil {
		return err
	}
	if allowed.authorize != nil {
		return checkForm(r, info)
	}
	if allowed.readsWhole(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}) {
		if info.Verb == "patch" && !slices.Contains(allowed.AnyPatch, pathOf(a)) {
			return allowed.checkPatch(r)
		}
		return nil
	}
	if err := metadataSelector(r); err != nil {
		return err
	}
	switch info.Verb {
	case "create": // the answer contains only the object that the user has sent
		return nil
	case "get", "list", "watch":
		accepted := metadataOnly(r.Header.Values("Accept"))
		if accepted == "" {
			return errors.New("it can read metadata only, and must accept PartialObjectMetadata")
		}
		r.Header.Set("Accept", accepted)
		return nil
	case "delete":
		r.Header.Set("Accept", metadataAs("PartialObjectMetadata", r.Header.Values("Accept")))
		return nil
	case "deletecollection":
		r.Header.Set("Accept", metadataAs("PartialObjectMetadataList", r.Header.Values("Accept")))
		return nil
	case "patch":
		r.Header.Set("Accept", metadataAs("PartialObjectMetadata", r.Header.Values("Accept")))
		return allowed.checkPatch(r)
	default:
		return nil
	}
}

// metadataAs returns the Accept header that asks for metadata of a kind, in protobuf if the client accepts
// that, in JSON if it accepts nothing else, or in both.
func metadataAs(kind string, accepted []string) string {
	as, all := ";as="+kind+";g="+metav1.GroupName+";v=v1", strings.Join(accepted, ",")
	switch {
	case !strings.Contains(all, runtime.ContentTypeProtobuf):
		return runtime.ContentTypeJSON + as
	case !strings.Contains(all, runtime.ContentTypeJSON):
		return runtime.ContentTypeProtobuf + as
	default:
		return runtime.ContentTypeProtobuf + as + "," + runtime.ContentTypeJSON + as
	}
}

// metadataOnly returns the clauses of an Accept header that ask for metadata. It formats them again, so
// that the server cannot parse them differently.
func metadataOnly(header []string) string {
	var accepted []string
	for clause := range strings.SplitSeq(strings.Join(header, ","), ",") {
		media, params, err := mime.ParseMediaType(clause)
		if err != nil || params["g"] != metav1.GroupName || params["v"] != "v1" {
			continue
		}
		if as := params["as"]; as == "PartialObjectMetadata" || as == "PartialObjectMetadataList" {
			accepted = append(accepted, media+";as="+as+";g="+metav1.GroupName+";v=v1")
		}
	}
	return strings.Join(accepted, ",")
}

// metadataSelector returns an error if a field selector of a request names a field outside the metadata:
// the selected objects would disclose the contents of that field.
func metadataSelector(r *http.Request) error {
	for _, text := range r.URL.Query()["fieldSelector"] {
		selector, err := fields.ParseSelector(text)
		if err != nil {
			return err
		}
		for _, requirement := range selector.Requirements() {
			if !strings.HasPrefix(requirement.Field, "metadata.") {
				return fmt.Errorf("it can select by metadata only, not by %s", requirement.Field)
			}
		}
	}
	return nil
}

// checkPatch allows a patch of the one form that our controllers send (R12): a merge patch of metadata
// only, with uid and resourceVersion as preconditions. A patch that names other fields is refused, so that
// their contents cannot be guessed.
func (allowed Restriction) checkPatch(r *http.Request) error {
	if !allowed.Patches {
		return errors.New("it cannot patch")
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != string(types.MergePatchType) {
		return fmt.Errorf("it can send patches of type %s only", types.MergePatchType)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxPatch))
	if err != nil {
		return fmt.Errorf("read the patch: %w", err)
	}
	var patch map[string]json.RawMessage
	if err := json.Unmarshal(body, &patch); err != nil {
		return fmt.Errorf("decode the patch: %w", err)
	}
	if len(patch) != 1 || patch["metadata"] == nil {
		return errors.New("it can patch metadata only")
	}
	var metadata map[string]json.RawMessage
	if err := json.Unmarshal(patch["metadata"], &metadata); err != nil {
		return fmt.Errorf("decode the patch: %w", err)
	}
	for name := range metadata {
		if !slices.Contains([]string{"uid", "resourceVersion", "ownerReferences", "finalizers"}, name) {
			return fmt.Errorf("it cannot patch metadata.%s", name)
		}
	}
	for _, name := range []string{"uid", "resourceVersion"} {
		var value string
		if err := json.Unmarshal(metadata[name], &value); err != nil || value == "" {
			return fmt.Errorf("its patches must have the precondition metadata.%s", name)
		}
	}
	// The server handles exactly the checked patch: after re-encoding, no name can occur twice.
	checked, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encode the patch: %w", err)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(checked)), int64(len(checked))
	return nil
}
