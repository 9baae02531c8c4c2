package deleteflow

import (
	"context"
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// recorder is a storage, a Closer and a Closed that record their calls.
type recorder struct {
	storage.Interface

	calls  []string
	delete func(ctx context.Context) error
}

func (r *recorder) Delete(
	ctx context.Context, _ string, _ runtime.Object, _ *storage.Preconditions,
	_ storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions,
) error {
	r.calls = append(r.calls, "delete")
	return r.delete(ctx)
}

func (r *recorder) close(_ context.Context, name string) (Closed, error) {
	r.calls = append(r.calls, "close "+name)
	return r, nil
}

func (r *recorder) Writing(ctx context.Context) context.Context { return ctx }
func (r *recorder) Open(context.Context)                        { r.calls = append(r.calls, "open") }

// TestR28_OnlyADecisionAboutContentsClosesAnObject: another deletion, and one that has succeeded for a newer state of the object,
// close nothing.
func TestR28_OnlyADecisionAboutContentsClosesAnObject(t *testing.T) {
	failure := errors.New("in use")
	for name, test := range map[string]struct {
		request *request
		delete  func(ctx context.Context) error
		calls   []string
		want    error
	}{
		"depends on the contents": {&request{deletes: true}, func(ctx context.Context) error {
			if err := requestFrom(ctx).needClosed("a"); err != nil {
				return err
			}
			return failure
		}, []string{"delete", "close a", "delete", "open"}, failure},
		"does not depend": {&request{deletes: true}, func(context.Context) error { return failure }, []string{"delete"}, failure},
		"depended in an old state": {&request{deletes: true}, func(ctx context.Context) error {
			_ = requestFrom(ctx).needClosed("a")
			return nil
		}, []string{"delete"}, nil},
		"another object": {&request{deletes: true}, func(ctx context.Context) error { return requestFrom(ctx).needClosed("b") }, []string{"delete"}, nil},
		"no deletion":    {&request{}, func(ctx context.Context) error { return requestFrom(ctx).needClosed("a") }, []string{"delete"}, nil},
	} {
		r := &recorder{delete: test.delete}
		ctx := context.WithValue(t.Context(), requestKey, test.request)
		err := whileClosed{r, r.close}.Delete(ctx, "/registry/namespaces/a", nil, nil, nil, nil, storage.DeleteOptions{})
		if !errors.Is(err, test.want) || !slices.Equal(r.calls, test.calls) {
			t.Errorf("%s: %v after %q, want %v after %q", name, err, r.calls, test.want, test.calls)
		}
		if len(test.request.closings) > 0 {
			t.Errorf("%s: %v is left", name, test.request.closings)
		}
	}
}
