package recyclebin

import (
	"bytes"
	cryptorand "crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var damageSeed = flag.Uint64("damage.seed", 0, "of TestDamagedDatabaseNeverEndsTheProcess; 0: a random one")

// A damaged database never ends the process, at its start or later. Either it is set aside with one log line, or all
// objects that it returns are as they were written. Later removals are kept.
func TestDamagedDatabaseNeverEndsTheProcess(t *testing.T) {
	seed := *damageSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-damage.seed=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	whole, key := written(t)
	pages := len(whole) / os.Getpagesize()
	if pages < 15 {
		t.Fatalf("the database has %d pages only", pages)
	}
	damages := map[string][]byte{"empty": {}}
	for _, size := range []int{1, 100, 4095, 4096, 8192, 8193, 12288, len(whole) / 3, len(whole) / 2, len(whole) - 4096, len(whole) - 1} {
		damages[fmt.Sprint("truncated to ", size)] = whole[:size]
	}
	for page := range pages {
		damages[fmt.Sprint("page ", page)] = scrambled(whole, random, page)
	}
	for n := range 20 {
		damages[fmt.Sprint("pages, ", n)] = scrambled(whole, random, random.Perm(pages)[:1+random.IntN(6)]...)
	}
	for name, content := range damages {
		t.Run(name, func(t *testing.T) { outlivesDamage(t, content, key, nil) })
		if strings.HasPrefix(name, "truncated") {
			t.Run(name+" while it is open", func(t *testing.T) { outlivesDamage(t, whole, key, content) })
		}
	}
}

func scrambled(whole []byte, random *rand.Rand, pages ...int) []byte {
	content := bytes.Clone(whole)
	for _, page := range pages {
		at := content[page*os.Getpagesize():][:os.Getpagesize()]
		for n := range at {
			at[n] = byte(random.Uint32())
		}
	}
	return content
}

const keptObjects = 60

func objectOf(n int) entry {
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s%d"},"x":"%s"}`, n, cryptorand.Text()+strings.Repeat(cryptorand.Text(), n%7*20))
	return entry{Item: Item{Version: "v1", Kind: "Secret", Name: fmt.Sprint("s", n), UID: types.UID(fmt.Sprint(n)), Removed: time.Now()}, body: []byte(body)}
}

// written returns a database, and its key.
func written(t *testing.T) (content, key []byte) {
	t.Helper()
	dir := t.TempDir()
	b, err := Open(dir, nil, Bounds{Bytes: 1 << 20, Age: time.Hour}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for n := range keptObjects {
		if err := b.write([]entry{objectOf(n)}, int64(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	content, err = os.ReadFile(filepath.Join(dir, databaseFile))
	if err == nil {
		key, err = os.ReadFile(filepath.Join(dir, keyFile))
	}
	if err != nil {
		t.Fatal(err)
	}
	return content, key
}

func outlivesDamage(t *testing.T, content, key, later []byte) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, databaseFile)
	if err := errors.Join(os.WriteFile(path, content, 0o600), os.WriteFile(filepath.Join(dir, keyFile), key, 0o600)); err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	b, err := Open(dir, nil, Bounds{Bytes: 1 << 20, Age: time.Hour}, slog.New(slog.NewTextHandler(&lines, nil)))
	if err != nil {
		t.Fatalf("it does not open: %v", err)
	}
	if later != nil {
		overwrite(t, path, later)
	}
	for _, one := range b.young() {
		i, err := b.head(one.key)
		if err == nil && i != nil {
			var o interface{ GetName() string }
			if o, err = b.body(one.key); err == nil && o.GetName() != i.Name {
				t.Errorf("%s is %s", i.Name, o.GetName())
			}
		}
		if err != nil && !isDamage(err) {
			t.Errorf("read: %v", err)
		}
	}
	// The first write may find the damage.
	if err := b.write([]entry{objectOf(1000)}, 1000); err != nil && !isDamage(err) {
		t.Errorf("write: %v", err)
	}
	if err := b.write([]entry{objectOf(1001)}, 1001); err != nil {
		t.Errorf("write again: %v", err)
	}
	all := b.young()
	if i, err := b.head(all[len(all)-1].key); err != nil || i.Name != "s1001" {
		t.Errorf("the last is %v, %v", i, err)
	}
	if n := strings.Count(lines.String(), "\n"); n > 1 {
		t.Errorf("it says\n%s", lines.String())
	}
	_, err = os.Stat(path + asideSuffix)
	if isAside := err == nil; isAside != (lines.Len() > 0) {
		t.Errorf("set aside: %t, says %q", isAside, lines.String())
	}
}

// overwrite replaces the content of a file that is open.
func overwrite(t *testing.T, path string, content []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(f, bytes.NewReader(content))
	if err := errors.Join(err, f.Truncate(int64(len(content))), f.Close()); err != nil {
		t.Fatal(err)
	}
}
