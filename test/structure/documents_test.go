package structure

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// longestLine is the greatest number of columns in a line of a document.
const longestLine = 120

// shortDocuments returns the greatest number of lines of the documents that are read from the first line to the last. What
// does not fit has a page of its own: below docs, or in internal/README.md.
func shortDocuments() map[string]int { return map[string]int{"README.md": 109, "ARCHITECTURE.md": 120} }

// document is a text file of the repository.
type document struct {
	path string // slash-separated, relative to the root
	text string
}

// documents reads all files of the repository with one of these extensions.
func documents(t *testing.T, extensions ...string) []document {
	t.Helper()
	var found []document
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && strings.HasPrefix(name, ".") && name != ".ci" || name == "bin" {
				return filepath.SkipDir
			}
			return nil
		}
		if !slices.Contains(extensions, filepath.Ext(path)) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		found = append(found, document{path: filepath.ToSlash(name), text: string(text)})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatalf("there are no files of type %v", extensions)
	}
	return found
}

func TestDocumentsThatAreReadWholeAreShort(t *testing.T) {
	for name, most := range shortDocuments() {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "\n"); n > most {
			t.Errorf("%s has %d lines, want %d at most", name, n, most)
		}
	}
}

func TestDocumentsHaveShortLines(t *testing.T) {
	for _, d := range documents(t, ".md") {
		number := 0
		isCode := false
		for line := range strings.Lines(d.text) {
			number++
			line = strings.TrimRight(line, "\n")
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				isCode = !isCode
			}
			// A row of a table cannot be wrapped, nor can the output of a program.
			if n := utf8.RuneCountInString(line); n > longestLine && !isCode && !strings.HasPrefix(line, "|") {
				t.Errorf("%s:%d has %d columns, want %d at most", d.path, number, n, longestLine)
			}
		}
	}
}

// TestNothingIsHalfMerged: the documents, and what is neither compiled nor parsed, have no markers of conflicts.
func TestNothingIsHalfMerged(t *testing.T) {
	marker := regexp.MustCompile(`(?m)^(<{7}|>{7}|\|{7})( |$)`)
	for _, d := range documents(t, ".md", ".txt", ".yaml", ".yml", ".jsonl", ".js", ".css", ".html") {
		if at := marker.FindString(d.text); at != "" {
			t.Errorf("%s has a marker of a conflict: %q", d.path, at)
		}
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns the fragments under which a document's headings can be linked.
func anchors(text string) []string {
	var found []string
	for _, match := range heading.FindAllStringSubmatch(text, -1) {
		slug := notSlug.ReplaceAllString(strings.ToLower(match[1]), "")
		found = append(found, strings.ReplaceAll(slug, " ", "-"))
	}
	return found
}

// TestLinksLead checks that the links of all documents lead to files and headings of the
// repository.
func TestLinksLead(t *testing.T) {
	checked := 0
	for _, d := range documents(t, ".md") {
		for _, match := range link.FindAllStringSubmatch(d.text, -1) {
			target, fragment, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			checked++
			path, text := filepath.Join(root, filepath.Dir(d.path), target), d.text
			if target != "" {
				if _, err := os.Stat(path); err != nil {
					t.Errorf("%s: %s leads nowhere", d.path, match[1])
					continue
				}
				if fragment == "" || filepath.Ext(target) != ".md" {
					continue
				}
				content, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				text = string(content)
			}
			if !slices.Contains(anchors(text), fragment) {
				t.Errorf("%s: %s leads to no heading", d.path, match[1])
			}
		}
	}
	if checked == 0 {
		t.Error("no link was checked")
	}
}

// TestReadmeQuotesThePerformanceReport: README states no measured figure of its own. Each line of
// its tables is a line of the report of make bench.
func TestReadmeQuotesThePerformanceReport(t *testing.T) {
	read := func(name string) []string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool { return !strings.HasPrefix(line, "| ") })
	}
	quoted, report := read("README.md"), read("docs/performance/README.md")
	if len(quoted) == 0 {
		t.Fatal("README has no table: this test is looking in the wrong place")
	}
	for _, line := range quoted {
		if !slices.Contains(report, line) {
			t.Errorf("README has a row that docs/performance/README.md does not have:\n%s", line)
		}
	}
}

// TestTargetsAreThere: a target that a document names exists, and what make help prints of each fits a line.
func TestTargetsAreThere(t *testing.T) {
	const column = 21 // of the descriptions
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^([a-z-]+):.*## (.*)$`).FindAllStringSubmatch(string(makefile), -1) {
		targets[match[1]] = true
		if n := column + utf8.RuneCountInString(match[2]); n > longestLine {
			t.Errorf("make help has %d columns for %s, want %d at most", n, match[1], longestLine)
		}
	}
	named := regexp.MustCompile("`make\\s+([a-z-]+)")
	for _, d := range documents(t, ".md") {
		for _, match := range named.FindAllStringSubmatch(d.text, -1) {
			if !targets[match[1]] {
				t.Errorf("%s names make %s, which is no target", d.path, match[1])
			}
		}
	}
}
