package mcpserver

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/coppice-dev/coppice/internal/rules/escape"
)

// The bounds of an answer, in bytes. A token is taken to have three bytes, so that 2000 tokens are mostAnswer; models
// have four in English, and fewer in names with digits. Both forms of an answer, the text and the structure, count.
const (
	mostAnswer = 6000
	mostText   = 1000 // of the text
	mostPage   = 3000 // of the items of a structure
	mostError  = 1500
	mostName   = 300
	mostNote   = 160
	mostSays   = 400
)

// Call is a call of a tool that may follow.
type Call struct {
	Tool      string         `json:"tool"`
	Arguments map[string]any `json:"arguments,omitempty" jsonschema:"arguments of the call; without them, repeat those of this call"`
	Why       string         `json:"why" jsonschema:"purpose of the call"`
}

// Page is the part that all answers have.
type Page struct {
	Summary string   `json:"summary"`
	Notes   []string `json:"notes,omitempty" jsonschema:"warnings, such as resources that could not be read"`
	Next    []Call   `json:"next,omitempty" jsonschema:"calls that may follow"`
	Cursor  string   `json:"cursor,omitempty" jsonschema:"pass it with the same arguments to get the next page"`
	More    int      `json:"more,omitempty" jsonschema:"number of items after this page"`
}

// text implements answer.
func (p *Page) text() string {
	var text strings.Builder
	text.WriteString(p.Summary + "\n")
	for _, note := range p.Notes {
		text.WriteString("note: " + note + "\n")
	}
	if p.More > 0 {
		fmt.Fprintf(&text, "not listed here: %d\n", p.More)
	}
	if p.Cursor != "" {
		fmt.Fprintf(&text, "next page: the same arguments with cursor %q\n", p.Cursor)
	}
	for n := range p.Next {
		fmt.Fprintf(&text, "next: %s, %s\n", p.Next[n].Tool, p.Next[n].Why)
	}
	all := text.String()
	if at := fits(all, mostText); at < len(all) {
		return all[:at] + "…\n"
	}
	return all
}

// note adds the lines of a text as notes, up to a limit.
func (p *Page) note(lines ...string) {
	const mostNotes = 3
	for _, line := range lines {
		for l := range strings.Lines(line) {
			if l = strings.TrimSpace(l); l == "" {
				continue
			}
			if len(p.Notes) == mostNotes {
				p.Notes[mostNotes-1] = "and more notes, which are left out"
				return
			}
			p.Notes = append(p.Notes, clip(l, mostNote))
		}
	}
}

// suggest adds a next call. Arguments that are too long for an answer are left out: the caller has them.
func (p *Page) suggest(tool, why string, arguments map[string]any) {
	const mostEcho = 400
	if text, err := json.Marshal(arguments); err != nil || len(text) > mostEcho {
		why += "; repeat the arguments of this call"
		arguments = nil
	}
	p.Next = append(p.Next, Call{Tool: tool, Arguments: arguments, Why: why})
}

// window is the place of a page: its offset, the limit of its bytes, and a prefix that makes cursors those of one answer.
type window struct {
	prefix     string
	from, most int
}

// fill returns the items of a page, and sets the cursor and the number of further items. It makes only the items that it
// needs.
func fill[S, T any](p *Page, all []S, item func(*S) T, w window) []T {
	from := min(w.from, len(all))
	items, used := []T{}, 0
	for n := from; n < len(all); n++ {
		next := item(&all[n])
		text, err := json.Marshal(next)
		if err != nil {
			break
		}
		if used += len(text) + 1; used > w.most && len(items) > 0 {
			break
		}
		items = append(items, next)
	}
	if p.More = len(all) - from - len(items); p.More > 0 {
		p.Cursor = w.prefix + strconv.Itoa(from+len(items))
	}
	return items
}

// same returns an item that is made already.
func same[T any](item *T) T { return *item }

// clip returns a text from a cluster on one line, escaped, with at most about the given number of bytes in JSON.
func clip(text string, most int) string {
	if len(text) > 8*most { // the rest is not worth an escape
		return clip(strings.ToValidUTF8(text[:8*most], ""), most)
	}
	line := escape.Line(strings.ToValidUTF8(strings.TrimSpace(text), "?"))
	if at := fits(line, most); at < len(line) {
		return fmt.Sprintf("%s… (%d bytes)", line[:at], len(text))
	}
	return line
}

// fits returns the length of the beginning of a text that has at most the given number of bytes in JSON.
func fits(text string, most int) int {
	used := 0
	for at, r := range text {
		if used += encodedLength(r); used > most {
			return at
		}
	}
	return len(text)
}

// encodedLength returns the largest number of bytes that a character may take in JSON.
func encodedLength(r rune) int {
	switch {
	case r == '"' || r == '\\':
		return 2
	case r == '<' || r == '>' || r == '&' || r == 0x2028 || r == 0x2029 || r < ' ':
		return 6
	}
	return utf8.RuneLen(r)
}

// bounded returns the result of a call, or an error in its place if it exceeds the limit.
func bounded(r mcp.Result) mcp.Result {
	result, ok := r.(*mcp.CallToolResult)
	if !ok {
		return r
	}
	if result.IsError {
		for _, c := range result.Content {
			if text, isText := c.(*mcp.TextContent); isText {
				text.Text = clip(text.Text, mostError)
			}
		}
		result.StructuredContent = nil
		return result
	}
	if text, err := json.Marshal(result); err != nil || len(text) > mostAnswer {
		return failed(fmt.Errorf("the answer exceeds %d bytes: ask about fewer objects", mostAnswer))
	}
	return result
}
