// Package page has the web page that shows deletions: static files, without data of any cluster. A LinkServer
// opens it in the browser of one user.
//
// "coppice web", the API server of "coppice up" and "coppice collect" serve the files unchanged, below /coppice/.
// In the browser they request the paths below /coppice/v1 of the same server (package api), which authenticates
// the user. So everybody may read the files, but not the data that they show. They are plain ES modules, with no
// build step, and load nothing from other servers; the content security policy forbids it.
//
// The modules, from the most general to the most specific:
//
//	words.js    durations, names and sentences
//	dom.js      elements from data; text is never parsed as HTML
//	api.js      authentication, requests, and streams of events
//	model.js    a deletion: its objects at each moment, in groups (pure)
//	picture.js  the picture of a deletion, and the same as a list
//	contract.js the server's answers about deletions, for the model and the views
//	stories.js, story.js, preview.js, health.js, guess.js, with notes.js  the views
//	app.js      the addresses of the views, and the login
package page

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

const (
	// Root is the address of the page.
	Root = "/coppice/"
	// filesPath is the path of the other files.
	filesPath = Root + "page/"
	// index is the page itself.
	index = "index.html"
)

// policy returns the policy that lets the page run its own scripts and send requests to its own server, and nothing
// else. It names the script in the page itself by its digest.
func policy() string {
	page := string(files()[index].content)
	_, script, _ := strings.Cut(page, "<script>")
	script, _, _ = strings.Cut(script, "</script>")
	sum := sha256.Sum256([]byte(script))
	return "default-src 'none'; script-src 'self' 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; " +
		"style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
}

//go:embed files
var embedded embed.FS

// file is a file as it is served.
type file struct {
	content     []byte
	contentType string
	tag         string // as an ETag
}

// Paths returns the paths of all files. Nothing in them is secret.
func Paths() []string {
	var all []string
	for name := range files() {
		all = append(all, pathOf(name))
	}
	return all
}

func pathOf(name string) string {
	if name == index {
		return Root
	}
	return filesPath + name
}

// Handler serves the files at their paths.
func Handler() http.Handler {
	mux := http.NewServeMux()
	for name, f := range files() {
		pattern := pathOf(name)
		if name == index {
			pattern += "{$}"
		}
		mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) { f.serve(w, r) })
	}
	return Guarded(mux)
}

// Guarded sets the headers that bind the page to its own origin.
func Guarded(next http.Handler) http.Handler {
	policy := policy()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// serve answers with the file, or with 304 if the browser has it.
func (f file) serve(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-cache") // ask whether it has changed
	header.Set("ETag", f.tag)
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", f.contentType)
	_, _ = w.Write(f.content)
}

// files returns all files by name.
func files() map[string]file {
	all := map[string]file{}
	entries, err := fs.ReadDir(embedded, "files")
	for _, entry := range entries {
		var content []byte
		if content, err = embedded.ReadFile("files/" + entry.Name()); err != nil {
			break
		}
		sum := sha256.Sum256(content)
		all[entry.Name()] = file{content, contentTypes()[path.Ext(entry.Name())], `"` + hex.EncodeToString(sum[:16]) + `"`}
	}
	if err != nil {
		panic("page: read the embedded files: " + err.Error())
	}
	return all
}

func contentTypes() map[string]string {
	return map[string]string{
		".html": "text/html; charset=utf-8",
		".css":  "text/css; charset=utf-8",
		".js":   "text/javascript; charset=utf-8",
		".svg":  "image/svg+xml",
	}
}
