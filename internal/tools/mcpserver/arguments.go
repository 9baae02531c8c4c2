package mcpserver

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/coppice-dev/coppice/internal/tools/ask"
)

// The bounds of the arguments of a call.
const (
	mostObjects  = 64
	mostArgument = 512 // bytes of an argument
	// mostCursor bounds the offset in a cursor.
	mostCursor = 10_000_000
)

// Deletion are the arguments of a deletion and its preview.
type Deletion struct {
	Objects        []string `json:"objects,omitempty" jsonschema:"objects to delete, as TYPE/NAME: deployment/web"`
	Type           string   `json:"type,omitempty" jsonschema:"type of the objects, instead of objects; needs selector or all"`
	Selector       string   `json:"selector,omitempty" jsonschema:"labels of the objects of type: app=web,tier!=cache"`
	All            bool     `json:"all,omitempty" jsonschema:"all objects of type in the namespace"`
	Namespace      string   `json:"namespace,omitempty" jsonschema:"namespace of the objects; default: that of the kubeconfig"`
	Cascade        string   `json:"cascade,omitempty" jsonschema:"propagation policy: background (the default), foreground or orphan"`
	AssumeReleased bool     `json:"assumeReleased,omitempty" jsonschema:"assume that controllers remove all finalizers"`
}

// check returns an error if the arguments do not name a deletion.
func (d *Deletion) check() error {
	switch {
	case len(d.Objects) > 0 && d.Type != "":
		return errors.New("objects and type exclude each other: name objects as TYPE/NAME, or a type with selector or all")
	case len(d.Objects) == 0 && d.Type == "":
		return errors.New("name the objects: objects as TYPE/NAME, or a type with selector or all")
	case d.Type == "" && (d.Selector != "" || d.All):
		return errors.New("selector and all need a type, and exclude objects")
	case d.Type != "" && (d.Selector != "") == d.All:
		return errors.New("type needs either a selector or all")
	case strings.ContainsAny(d.Type, "/, "):
		return fmt.Errorf("type %s is not one type, such as deployments or deployments.apps", quoted(d.Type))
	}
	switch d.Cascade {
	case "", "background", "foreground", "orphan":
	default:
		return fmt.Errorf("cascade %s is unknown: choose background, foreground or orphan", quoted(d.Cascade))
	}
	return errors.Join(checkNames(d.Objects), checkTexts(d.Type, d.Selector, d.Namespace))
}

// Args returns the objects as arguments of a command.
func (d *Deletion) Args() []string {
	if d.Type != "" {
		return []string{d.Type}
	}
	return d.Objects
}

// key identifies the arguments.
func (d Deletion) key() (key deletionKey, err error) {
	d.Cascade = cmp.Or(d.Cascade, "background")
	text, err := json.Marshal(d)
	if err != nil {
		return key, fmt.Errorf("read the arguments: %w", err)
	}
	return sha256.Sum256(text), nil
}

// arguments returns the arguments of a next call.
func (d *Deletion) arguments() map[string]any {
	all := map[string]any{}
	text, err := json.Marshal(d)
	if err != nil || json.Unmarshal(text, &all) != nil {
		return map[string]any{}
	}
	return all
}

// Restoration are the arguments of an undo.
type Restoration struct {
	Backup    string `json:"backup,omitempty" jsonschema:"name of a backup in the answer of the tool delete"`
	Deletion  string `json:"deletion,omitempty" jsonschema:"instead of a backup: the deleted object as TYPE/NAME, or the id of the deletion in stories"`
	Namespace string `json:"namespace,omitempty" jsonschema:"namespace of the deleted object; default: that of the kubeconfig"`
	DryRun    bool   `json:"dryRun,omitempty" jsonschema:"list the objects that would be created, and create none"`
}

func (r *Restoration) check() error {
	if (r.Backup == "") == (r.Deletion == "") {
		return errors.New("name either a backup or a deletion")
	}
	if strings.ContainsAny(r.Backup, `/\`) || strings.HasPrefix(r.Backup, ".") {
		return fmt.Errorf("backup %s is not the name of a backup: the answer of the tool delete has it", quoted(r.Backup))
	}
	if strings.Contains(r.Deletion, "/") {
		return errors.Join(checkNames([]string{r.Deletion}), checkTexts(r.Namespace))
	}
	return checkTexts(r.Deletion, r.Namespace)
}

// checkNames returns an error if an object is not named as TYPE/NAME.
func checkNames(objects []string) error {
	if len(objects) > mostObjects {
		return fmt.Errorf("objects are %d, more than %d: use a type with a selector", len(objects), mostObjects)
	}
	for _, o := range objects {
		kind, name, _ := strings.Cut(o, "/")
		if kind == "" || name == "" || strings.ContainsAny(o, ", ") || strings.Contains(name, "/") {
			return fmt.Errorf("%s is not TYPE/NAME, such as deployment/web", quoted(o))
		}
	}
	return checkTexts(objects...)
}

func checkTexts(all ...string) error {
	for _, text := range all {
		if len(text) > mostArgument {
			return fmt.Errorf("an argument has %d bytes, more than %d", len(text), mostArgument)
		}
		if strings.HasPrefix(text, "-") {
			return fmt.Errorf("%s begins with a dash", quoted(text))
		}
	}
	return nil
}

// objects returns the objects of a question, which are names or UIDs.
func objects(names, uids []string) (ask.Objects, error) {
	if len(uids) > mostObjects {
		return ask.Objects{}, fmt.Errorf("more than %d uids", mostObjects)
	}
	return ask.Objects{Args: names, UIDs: uids}, errors.Join(checkNames(names), checkTexts(uids...))
}

// offset returns the offset of a cursor, which has a prefix.
func offset(cursor, prefix string) (int, error) {
	if cursor == "" {
		return 0, nil
	}
	text, ok := strings.CutPrefix(cursor, prefix)
	n, err := strconv.Atoi(text)
	if !ok || err != nil || n < 0 || n > mostCursor {
		return 0, fmt.Errorf("cursor %s is not of an answer to this question: call the tool without it", quoted(cursor))
	}
	return n, nil
}

// quoted returns an argument for an error.
func quoted(text string) string { return strconv.Quote(clip(text, mostName)) }
