package collector

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// fill gives every field below v a value of its own, and every list two elements.
func fill(t *testing.T, v reflect.Value, next *int64) {
	t.Helper()
	*next++
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(*next, 0).UTC()))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(t, field, next)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(t, v.Index(i), next)
		}
	case reflect.String:
		v.SetString(string(rune('a'+*next%26)) + time.Duration(*next).String())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(*next)
	case reflect.Uint64:
		v.SetUint(uint64(*next))
	default:
		t.Fatalf("no value for a %s", v.Type())
	}
}

// unset returns the paths of the fields that have no value.
func unset(v reflect.Value, path string) []string {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
	case v.Kind() == reflect.Struct:
		var found []string
		for i := range v.NumField() {
			found = append(found, unset(v.Field(i), path+"."+v.Type().Field(i).Name)...)
		}
		return found
	case v.Kind() == reflect.Slice && v.Len() > 0:
		return unset(v.Index(0), path+"[0]")
	}
	if v.IsZero() {
		return []string{path}
	}
	return nil
}

// asMap returns the JSON representation of a value.
func asMap(t *testing.T, value any) map[string]any {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestConversionsLoseNoField converts internal values in which every field has a distinct value: no field is
// lost or mixed up, and no field of the public types is without a source.
func TestConversionsLoseNoField(t *testing.T) {
	var next int64
	var status collector.Status
	fill(t, reflect.ValueOf(&status).Elem(), &next)
	public := statusOf(status)
	if diff := cmp.Diff(asMap(t, status), without(asMap(t, public), "synced", "asleepSince", "probeError", "resources")); diff != "" {
		t.Errorf("Status (-internal +public):\n%s", diff)
	}
	if got, want := unset(reflect.ValueOf(public), ""), []string{".Synced", ".AsleepSince", ".ProbeError", ".Resources"}; !cmp.Equal(got, want) {
		t.Errorf("fields of Status without a value: %v, want %v", got, want)
	}

	var record collector.Record
	fill(t, reflect.ValueOf(&record).Elem(), &next)
	if diff := cmp.Diff(asMap(t, record), asMap(t, recordOf(record))); diff != "" {
		t.Errorf("Record (-internal +public):\n%s", diff)
	}
	if got := unset(reflect.ValueOf(recordOf(record)), ""); len(got) > 0 {
		t.Errorf("fields of Record without a value: %v", got)
	}

	var breaker Breaker
	breaker.Share = 0.5
	fill(t, reflect.ValueOf(&breaker.Window).Elem(), &next)
	fill(t, reflect.ValueOf(&breaker.Min).Elem(), &next)
	if got := unset(reflect.ValueOf(collector.Breaker(breaker)), ""); len(got) > 0 {
		t.Errorf("fields of Breaker without a value: %v", got)
	}

	monitor := feed.MonitorStatus{
		Kind: ownership.Kind{Group: "apps", Kind: "ReplicaSet"}, Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"},
		State: feed.Failing, Since: time.Unix(7, 0), Err: errors.New("refused"), Complete: true, Leaving: true, Revision: "8",
	}
	want := ResourceStatus{
		Kind: "ReplicaSet.apps", Resource: "replicasets.apps", Version: "v1", State: "failing", Since: time.Unix(7, 0), Error: "refused",
		Complete: true, Leaving: true, Revision: "8",
	}
	if diff := cmp.Diff(want, resourceStatusOf(monitor)); diff != "" {
		t.Errorf("ResourceStatus (-want +got):\n%s", diff)
	}
	if n := reflect.TypeFor[feed.MonitorStatus]().NumField(); n != 8 {
		t.Errorf("a MonitorStatus has %d fields: is one of them not in ResourceStatus?", n)
	}
}

func without(m map[string]any, keys ...string) map[string]any {
	for _, key := range keys {
		delete(m, key)
	}
	return m
}

// TestPublicConstantsAreTheInternalOnes compares the constants of the public API with the internal ones.
func TestPublicConstantsAreTheInternalOnes(t *testing.T) {
	for public, internal := range map[string]string{
		string(ActionDelete): string(collector.ActionDelete), string(ActionDetach): string(collector.ActionDetach),
		string(ActionUnblock): string(collector.ActionUnblock), string(ActionOrphan): string(collector.ActionOrphan),
		string(ActionRemoveFinalizer): string(collector.ActionRemoveFinalizer),
		string(AnswerDone):            string(collector.AnswerDone), string(AnswerUnknown): string(collector.AnswerUnknown),
		string(AnswerNone): string(collector.AnswerNone),
	} {
		if public != internal {
			t.Errorf("%q is %q inside", public, internal)
		}
	}
}
