package storemetadata

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
)

// pageSize is the number of objects that are read at once, with all their fields.
const pageSize = 250

// continuation is the position in a list, as the client's continue token has it.
type continuation struct {
	Revision int64  `json:"rv"`
	After    string `json:"after"` // the key of the last object, without the prefix
}

func (c continuation) token() string {
	text, err := json.Marshal(c)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseContinuation(token string) (c continuation, err error) {
	if token == "" {
		return c, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err == nil && (c.Revision <= 0 || c.After == "") {
		err = errors.New("it is incomplete")
	}
	return c, err
}

// list reads the newest state, or the state at which an earlier page of the list was read.
func (t *target) list(ctx context.Context, prefix string, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	from, err := parseContinuation(options.Continue)
	if err != nil {
		return nil, apierrors.NewBadRequest("continue key is not valid: " + err.Error())
	}
	list := &metav1.PartialObjectMetadataList{TypeMeta: typeOfMetadata()}
	list.Kind += "List"
	last, remaining, err := t.read(ctx, prefix, from, options.Limit, func(stored etcd.Stored) (more bool, err error) {
		object, err := decode(stored.Value, stored.Revision)
		if err != nil {
			return false, err
		}
		object.TypeMeta = metav1.TypeMeta{} // the list has the type
		list.Items = append(list.Items, *object)
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	list.ResourceVersion = strconv.FormatInt(last.Revision, 10)
	if remaining > 0 {
		list.Continue = last.token()
		list.RemainingItemCount = &remaining
	}
	return list, nil
}

// page reads the objects after the end of another page.
func (t *target) page(ctx context.Context, prefix string, last continuation, size int64) (etcd.Page, error) {
	after := ""
	if last.After != "" {
		after = prefix + last.After
	}
	page, err := t.source.Follower.ReadPage(ctx, prefix, after, last.Revision, size)
	return page, readError(err)
}

// readError returns the answer of the API to an error of a read.
func readError(err error) error {
	switch {
	case errors.Is(err, etcd.ErrCompacted):
		return apierrors.NewResourceExpired("The provided continue parameter is too old: " + err.Error())
	case err != nil:
		return apierrors.NewInternalError(err)
	}
	return nil
}

// read passes the stored objects to a function, until the function returns false or fails because it cannot decode one.
// It returns the position of the last one and the number of objects after it. Without a limit, everything after the first
// page is one stream.
func (t *target) read(
	ctx context.Context, prefix string, from continuation, limit int64, pass func(etcd.Stored) (more bool, err error),
) (last continuation, remaining int64, err error) {
	var reached int64
	follower := t.source.Follower
	follower.At(func(revision int64) { reached = revision })
	last = from
	take := func(stored etcd.Stored) bool {
		last.After = strings.TrimPrefix(stored.Key, prefix)
		more, failure := pass(stored)
		if failure != nil {
			err = apierrors.NewInternalError(corrupt(stored.Key, failure))
		}
		return more && failure == nil
	}
	for left := limit; ; {
		size := int64(pageSize)
		if limit > 0 {
			size = min(size, left)
		}
		page, failure := t.page(ctx, prefix, last, size)
		if failure != nil {
			return last, 0, failure
		}
		if last.Revision == 0 {
			follower.Read(reached, page.Revision)
			last.Revision = page.Revision
		}
		for _, stored := range page.Objects {
			if !take(stored) {
				return last, page.Remaining, err
			}
		}
		left -= int64(len(page.Objects))
		switch {
		case page.Remaining <= 0 || limit > 0 && left <= 0:
			return last, page.Remaining, nil
		case limit <= 0:
			failure = follower.ReadAll(ctx, prefix, prefix+last.After, last.Revision, take)
			return last, 0, cmp.Or(err, readError(failure))
		}
	}
}

// At returns the uid that an object had at a revision, now at revision 0, and the revision at which it was read. The
// uid is empty if there was no such object, or if etcd has dropped the revision. It does not check authorization.
func (s *Source) At(ctx context.Context, resource schema.GroupResource, namespace, name string, revision int64) (types.UID, int64, error) {
	prefix, ok := s.Follower.PrefixOf(resource)
	if !ok {
		return "", 0, nil
	}
	key := prefix + name
	if namespace != "" {
		key = prefix + namespace + "/" + name
	}
	page, err := s.Follower.ReadPage(ctx, key, "", revision, 1) // a longer key with this prefix comes after it
	switch {
	case errors.Is(err, etcd.ErrCompacted):
		return "", 0, nil
	case err != nil:
		return "", 0, err
	case len(page.Objects) == 0 || page.Objects[0].Key != key:
		return "", page.Revision, nil
	}
	object, err := decode(page.Objects[0].Value, page.Objects[0].Revision)
	if err != nil {
		return "", 0, corrupt(key, err)
	}
	return object.GetUID(), page.Revision, nil
}
