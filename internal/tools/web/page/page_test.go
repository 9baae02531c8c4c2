package page

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mostScript bounds the scripts of the page, in bytes as sent.
const mostScript = 150_000

func get(t *testing.T, path string, headers ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	for n := 0; n < len(headers); n += 2 {
		r.Header.Set(headers[n], headers[n+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w.Result()
}

// Every file is served with its type, and with the headers that bind it to its origin.
func TestFilesAreServedWithTypeAndSecurityHeaders(t *testing.T) {
	paths := Paths()
	if !slices.Contains(paths, Root) {
		t.Fatalf("the page is not among %v", paths)
	}
	for _, path := range paths {
		response := get(t, path)
		policy := response.Header.Get("Content-Security-Policy")
		if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") == "" || response.Header.Get("X-Content-Type-Options") != "nosniff" ||
			response.Header.Get("Referrer-Policy") != "no-referrer" || !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %s %v", path, response.Status, response.Header)
		}
		tag := response.Header.Get("ETag")
		if again := get(t, path, "If-None-Match", tag); tag == "" || again.StatusCode != http.StatusNotModified {
			t.Errorf("%s with tag %s: %s", path, tag, again.Status)
		}
	}
	for _, path := range []string{"/coppice/page/", "/coppice/page/nothing.js", "/coppice/page/../page.go", "/coppice/other", "/"} {
		if response := get(t, path); response.StatusCode == http.StatusOK {
			t.Errorf("%s: %s", path, response.Status)
		}
	}
}

// The scripts stay small: all are loaded at once.
func TestScriptsAreSmall(t *testing.T) {
	size := 0
	for name, f := range files() {
		if strings.HasSuffix(name, ".js") {
			size += len(f.content)
		}
	}
	t.Logf("%d bytes of script", size)
	if size == 0 || size > mostScript {
		t.Errorf("%d bytes of script, want at most %d", size, mostScript)
	}
}

var (
	// inline is script or style in the page itself, which its policy forbids, except for one script.
	inline = regexp.MustCompile(`(?i)<style|<script\s+type="module"\s*>|\son[a-z]+\s*=|\sstyle\s*=`)
	// parsed is text that a script has parsed as HTML or run.
	parsed = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|createContextualFragment`)
	// foreign is an address elsewhere.
	foreign = regexp.MustCompile(`https?://[^\s"'` + "`" + `)]+`)
	// namespace is the XML namespace of SVG, which is a name and not an address.
	namespace = "http://www.w3.org/2000/svg"
)

// Names from a cluster cannot become code of the page, and the page loads nothing from other servers.
func TestFilesKeepTheirPolicy(t *testing.T) {
	for _, path := range Paths() {
		text, err := io.ReadAll(get(t, path).Body)
		if err != nil {
			t.Fatal(err)
		}
		if path == Root && inline.Match(text) {
			t.Errorf("%s: %s", path, inline.Find(text))
		}
		if scripts := bytes.Count(text, []byte("<script>")); path == Root && scripts != 1 {
			t.Errorf("%s has %d scripts, and its policy allows one", path, scripts)
		}
		if found := parsed.Find(text); found != nil {
			t.Errorf("%s: %s", path, found)
		}
		for _, address := range foreign.FindAllString(string(text), -1) {
			if address != namespace {
				t.Errorf("%s names %s", path, address)
			}
		}
	}
}

var imported = regexp.MustCompile(`(?m)^(?:import|export) .*?from "\./([^"]+)"`)

// Every imported module exists, and every existing module is imported.
func TestModulesAreThoseThatAreImported(t *testing.T) {
	all, used := files(), map[string]bool{"app.js": true}
	for name, f := range all {
		for _, match := range imported.FindAllSubmatch(f.content, -1) {
			module := string(match[1])
			used[module] = true
			if _, ok := all[module]; !ok {
				t.Errorf("%s imports %s, which is not there", name, module)
			}
		}
	}
	for name := range all {
		if strings.HasSuffix(name, ".js") && !used[name] {
			t.Errorf("%s is imported by no module", name)
		}
	}
}
