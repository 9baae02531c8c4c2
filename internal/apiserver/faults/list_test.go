package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver/storage"
)

// versions is a storage whose writes have consecutive resourceVersions, and whose lists have the one that they ask for.
type versions struct {
	apistorage.Interface
	last      int
	compacted bool
}

func (v *versions) Create(_ context.Context, _ string, _, out runtime.Object, _ uint64) error {
	v.last++
	out.(*corev1.ConfigMap).ResourceVersion = fmt.Sprint(v.last)
	return nil
}

func (v *versions) GetList(_ context.Context, _ string, opts apistorage.ListOptions, list runtime.Object) error {
	version := fmt.Sprint(v.last)
	if opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		if v.compacted {
			return context.DeadlineExceeded
		}
		version = opts.ResourceVersion
	}
	list.(*corev1.ConfigMapList).ResourceVersion = version
	return nil
}

// TestStaleListsHaveTheStateOfTheirTime checks that a list has the state that there was, and the newest one where that
// is not known, is the same, or has been compacted.
func TestStaleListsHaveTheStateOfTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const long = mostPast + 10
		source := &versions{last: 100}
		wrapped := NewInjector(parsed(t, "stale-list delay=1s"), Config{Clock: clock.RealClock{}}).Wrap(storage.Kind{}, source)
		list := func(age time.Duration) string {
			t.Helper()
			var answer corev1.ConfigMapList
			ctx := context.WithValue(t.Context(), exchangeKey{}, &exchange{fate: Fate{Age: age}})
			if err := wrapped.GetList(ctx, "", apistorage.ListOptions{ResourceVersion: "0"}, &answer); err != nil {
				t.Fatal(err)
			}
			return answer.ResourceVersion
		}
		write := func() {
			t.Helper()
			if err := wrapped.Create(t.Context(), "", nil, &corev1.ConfigMap{}, 0); err != nil {
				t.Fatal(err)
			}
		}
		if got := list(time.Minute); got != "100" {
			t.Errorf("without a write, a list has %s", got)
		}
		for range 3 { // 101 to 103, a second each
			write()
			time.Sleep(time.Second)
		}
		for age, want := range map[time.Duration]string{
			0: "103", time.Second / 2: "103", 3 * time.Second / 2: "102", 5 * time.Second / 2: "101", time.Hour: "100",
		} {
			if got := list(age); got != want {
				t.Errorf("%s before, the state was %s; the list has %s", age, want, got)
			}
		}
		for range long {
			write()
		}
		if got := list(time.Hour); got == "100" || strings.HasPrefix(got, "-") {
			t.Errorf("after %d more writes, the list has %s", long, got)
		}
		source.compacted = true
		if got, want := list(time.Hour), fmt.Sprint(103+long); got != want {
			t.Errorf("without the past, the list has %s, want %s", got, want)
		}
	})
}
