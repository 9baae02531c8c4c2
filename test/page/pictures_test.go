package page

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

var pictures = flag.String("pictures", "", "directory to write the pictures of the documents to")

// mostBytes bounds the size of a picture.
const mostBytes = 150_000

// The pictures of the documents are what Chromium shows.
func TestPicturesAreWhatChromiumShows(t *testing.T) {
	if *pictures == "" {
		t.Skip("no directory for them: make pictures")
	}
	c, _, one := newStories()
	begin(one)
	server := serve(t, c)
	for _, p := range []struct {
		name, path, says, scheme string
		width, height            int64
	}{
		{"stories", "stories", "Waits for", "light", 1180, 520},
		{"story", "story/a", "by acme.io/hold", "light", 1180, 800},
		{"story-dark", "story/a", "by acme.io/hold", "dark", 1180, 800},
		{"preview", named, "To delete exactly this", "light", 1180, 900},
		{"health", "health", "What it means", "light", 1180, 1120},
		{"phone", "story/a", "by acme.io/hold", "light", 390, 760},
	} {
		b := newTab(t, server, p.width, p.height)
		call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: p.scheme}}})
		b.open(p.path)
		b.untilText(p.says)
		eval[int](b, "new Promise((r) => setTimeout(r, 500, 0))") // transitions end
		picture := run(b, chromedp.CaptureScreenshot())
		if len(picture) > mostBytes {
			t.Errorf("%s has %d bytes, want at most %d", p.name, len(picture), mostBytes)
		}
		if err := os.WriteFile(filepath.Join(*pictures, p.name+".png"), picture, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
