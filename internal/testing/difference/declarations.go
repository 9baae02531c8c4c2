package difference

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/testing/variation"
)

// Declaration permits differences of whole objects. Patterns are about the whole of a text.
type Declaration struct {
	// Reason says why the difference is on purpose. Section is the heading in docs/semantics.md that declares it, and
	// Words is a phrase of that section.
	Reason  string `json:"reason"`
	Section string `json:"section"`
	Words   string `json:"words"`

	// Kind is a pattern for the kind of the difference: the contents of a template are of a Pod. Empty: all.
	Kind string `json:"kind"`
	// Path is a pattern for the field that differs, with [] for indexes, Difference is one for the whole line without
	// the kind. One of them may be empty.
	Path       string `json:"path"`
	Difference string `json:"difference"`

	// Object is a pattern for the kind of the object that the request is about. Empty: all.
	Object string `json:"object"`
	// Verbs are the verbs of experiments; change stands for each verb that changes a stored object. Empty: all.
	Verbs []string `json:"verbs"`
	// Changes is a pattern for a place that the request changes, with [] for indexes. Empty: any.
	Changes string `json:"changes"`
	// Seen is Server or Process, if only one of the comparisons can see the difference.
	Seen string `json:"seen"`
	// Pairs means that only two mistakes at once, or a random value, show the difference. All experiments of a seed may be
	// without it.
	Pairs bool `json:"pairs"`

	patterns map[string]*regexp.Regexp // by text
}

// The comparisons that can see a difference.
const (
	// Server compares two servers, by requests: with admission, managed fields and messages.
	Server = "server"
	// Process compares two registries in one process.
	Process = "process"
)

// Declarations are the declared differences that a comparison can see.
type Declarations struct {
	all []*Declaration

	mu   sync.Mutex
	used map[*Declaration]int // guarded by mu
}

// ReadDeclarations reads the declarations in a file that a comparison can see.
func ReadDeclarations(file, comparison string) (*Declarations, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all, err := parseDeclarations(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	all = slices.DeleteFunc(all, func(d *Declaration) bool { return d.Seen != "" && d.Seen != comparison })
	return &Declarations{all: all, used: map[*Declaration]int{}}, nil
}

func parseDeclarations(data []byte) ([]*Declaration, error) {
	var all []*Declaration
	if err := yaml.UnmarshalStrict(data, &all); err != nil {
		return nil, err
	}
	for i, d := range all {
		if err := d.compile(); err != nil {
			return nil, fmt.Errorf("declaration %d (%s): %w", i+1, d.Reason, err)
		}
	}
	return all, nil
}

func (d *Declaration) compile() error {
	if d.Reason == "" || d.Section == "" || d.Words == "" {
		return errors.New("reason, section and words are required")
	}
	if d.Path == "" && d.Difference == "" {
		return errors.New("path or difference is required")
	}
	if d.Seen != "" && d.Seen != Server && d.Seen != Process {
		return fmt.Errorf("seen is %q, not %s or %s", d.Seen, Server, Process)
	}
	d.patterns = map[string]*regexp.Regexp{}
	for _, text := range []string{d.Kind, d.Path, d.Difference, d.Object, d.Changes} {
		if text == "" {
			continue
		}
		pattern, err := regexp.Compile("^(?:" + text + ")$")
		if err != nil {
			return err
		}
		d.patterns[text] = pattern
	}
	return nil
}

// matches reports whether a text is of a pattern, or the pattern is empty.
func (d *Declaration) matches(pattern, text string) bool {
	return pattern == "" || d.patterns[pattern].MatchString(text)
}

// permits reports whether a difference in the outcomes of an experiment is permitted. It is in the form of General.
func (d *Declaration) permits(e variation.Experiment, difference string) bool {
	kind, text, _ := strings.Cut(difference, ": ")
	return d.matches(d.Kind, kind) && d.matches(d.Difference, text) && d.matches(d.Path, pathOf(text)) &&
		d.matches(d.Object, e.Kind.GVK.Kind) && d.about(e)
}

// about reports whether an experiment has one of the verbs, and changes one of the places.
func (d *Declaration) about(e variation.Experiment) bool {
	changes := e.Verb != "create" && e.Verb != "store"
	if len(d.Verbs) > 0 && !slices.Contains(d.Verbs, e.Verb) && (!changes || !slices.Contains(d.Verbs, "change")) {
		return false
	}
	return d.Changes == "" || slices.ContainsFunc(e.Changes, func(c variation.Change) bool { return d.matches(d.Changes, c.Place()) })
}

// pathInLine finds the field that a difference is about.
var pathInLine = regexp.MustCompile(`^(?:only (?:ours|theirs): (?:\(the other accepts\) )?\w+ |message of \w+ |only (?:ours|theirs) has )?([^ ]*?)(?:: .*| = .*)?$`)

func pathOf(text string) string {
	if found := pathInLine.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return ""
}

// Reason returns the reason why a difference is permitted; empty if it is not. It is in the form of General.
func (all *Declarations) Reason(e variation.Experiment, difference string) string {
	for _, d := range all.all {
		if d.permits(e, difference) {
			all.mu.Lock()
			defer all.mu.Unlock()
			all.used[d]++
			return d.Reason
		}
	}
	return ""
}

// Unused returns the declarations that have permitted nothing, without those of pairs.
func (all *Declarations) Unused() []*Declaration {
	all.mu.Lock()
	defer all.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(all.all), func(d *Declaration) bool { return d.Pairs || all.used[d] > 0 })
}

// Objects returns those of the kinds whose requests can show the difference. Every kind may have a template of pods.
func (d *Declaration) Objects(kinds []string) []string {
	pattern := d.Object
	if pattern == "" && !d.matches(d.Kind, "Pod") {
		pattern = d.Kind
	}
	return slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return !d.matches(pattern, kind) })
}

// Undocumented returns the declarations whose words are not in their section of a document.
func (all *Declarations) Undocumented(document string) []*Declaration {
	sections := map[string]string{}
	for section := range strings.SplitSeq("\n"+document, "\n### ") {
		heading, text, _ := strings.Cut(section, "\n")
		text, _, _ = strings.Cut(text, "\n## ")
		sections[heading] = strings.Join(strings.Fields(text), " ")
	}
	return slices.DeleteFunc(slices.Clone(all.all), func(d *Declaration) bool { return strings.Contains(sections[d.Section], d.Words) })
}

// String returns the declaration as a line of a message.
func (d *Declaration) String() string {
	return fmt.Sprintf("%s (kind %q, path %q, difference %q)", d.Reason, d.Kind, d.Path, d.Difference)
}
