package recyclebin

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// The bin drops the oldest objects that exceed the age or the size, and stores the revision that it
// has reached.
func TestOldestObjectsBeyondTheBoundsAreDropped(t *testing.T) {
	dir, clock := t.TempDir(), clocktesting.NewFakeClock(time.Unix(1000, 0))
	b, err := Open(dir, nil, Bounds{Bytes: 4000, Age: time.Hour}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b.clock = clock
	add := func(n int) {
		t.Helper()
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s%d"},"x":"hunter2"}`, n)
		e := entry{Item: Item{Version: "v1", Kind: "Secret", Name: fmt.Sprint("s", n), UID: types.UID(fmt.Sprint(n)), Removed: clock.Now()}, body: []byte(body)}
		if err := b.write([]entry{e}, int64(n)); err != nil {
			t.Fatal(err)
		}
	}
	names := func() (names []string) {
		t.Helper()
		for _, one := range b.young() {
			i, err := b.head(one.key)
			if err != nil {
				t.Fatal(err)
			}
			o, err := b.body(one.key)
			if err != nil || o.GetName() != i.Name {
				t.Errorf("%s has the object %v, %v", i.Name, o, err)
			}
			names = append(names, i.Name)
		}
		return names
	}
	for n := range 100 {
		add(n)
	}
	all := names()
	if len(all) < 5 || len(all) > 20 || all[len(all)-1] != "s99" || all[0] != fmt.Sprint("s", 100-len(all)) {
		t.Errorf("of 100 are left %v", all)
	}
	clock.Step(59 * time.Minute)
	add(100)
	clock.Step(2 * time.Minute)
	if got := names(); len(got) != 1 || got[0] != "s100" {
		t.Errorf("after an hour are left %v", got)
	}
	add(101)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err = Open(dir, nil, Bounds{Bytes: 4000, Age: time.Hour}, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	b.clock = clock
	if reached, err := b.reached(); err != nil || reached != 101 || len(names()) != 2 {
		t.Errorf("opened again: %d, %v, %v", reached, names(), err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, databaseFile))
	if err != nil || bytes.Contains(content, []byte("hunter2")) || bytes.Contains(content, []byte("Secret")) {
		t.Errorf("the database can be read, %v", err)
	}
}

// A bin cannot be opened with another key, and the attempt loses nothing.
func TestAnotherKey(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	bounds := Bounds{Bytes: 4000, Age: time.Hour}
	b, err := Open(dir, nil, bounds, log)
	if err != nil {
		t.Fatal(err)
	}
	kept := entry{Item: Item{Version: "v1", Kind: "Secret", Name: "s", UID: "u", Removed: time.Now()}, body: []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}`)}
	if err := errors.Join(b.write([]entry{kept}, 1), b.Close()); err != nil {
		t.Fatal(err)
	}
	key, aside := filepath.Join(dir, keyFile), filepath.Join(dir, "aside")
	if err := os.Rename(key, aside); err != nil {
		t.Fatal(err)
	}
	if b, err := Open(dir, nil, bounds, log); err == nil || !strings.Contains(err.Error(), "put back the key") {
		t.Fatalf("it opens with a new key: %v, %v", b, err)
	}
	if err := os.Rename(aside, key); err != nil {
		t.Fatal(err)
	}
	if b, err = Open(dir, nil, bounds, log); err != nil {
		t.Fatal(err)
	}
	if found := len(b.young()); found != 1 {
		t.Errorf("%d items are there", found)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}
