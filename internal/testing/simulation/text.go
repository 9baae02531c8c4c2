package simulation

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// The text of a schedule has one step per line: the op and its fields.
//
//	create a/Set/x #1
//	create a/Pod/y #2 owners=Set/x#1!,Node/n#7 finalizers=example.com/f
//	delete a/Set/x policy=Orphan
//	collect #2
//	crash stale=1 kind=Pod
//
// Objects are namespace/kind/name, cluster-scoped ones /kind/name. UIDs are written as #n. A
// reference is kind/name#n, with ! if blockOwnerDeletion is true and - if it is false.

// uidOf returns the UID with a number, in the format of a real UID.
func uidOf(n int) ownership.UID {
	const zeros = "00000000-0000-4000-8000-000000000000"
	digits := strconv.Itoa(n)
	return ownership.UID(zeros[:len(zeros)-len(digits)] + digits)
}

// number returns the number of a UID.
func number(uid ownership.UID) string {
	if n, err := strconv.Atoi(strings.TrimPrefix(string(uid), "00000000-0000-4000-8000-")); err == nil {
		return strconv.Itoa(n)
	}
	return string(uid)
}

// kindOf returns the kind with a short name.
func kindOf(short string) ownership.Kind {
	switch short {
	case pod, node:
		return ownership.Kind{Kind: short}
	case set:
		return ownership.Kind{Group: "apps", Kind: "ReplicaSet"}
	default:
		return ownership.Kind{Group: "example.com", Kind: short}
	}
}

func shortOf(kind ownership.Kind) string {
	if kind.Group == "apps" {
		return set
	}
	return kind.Kind
}

// reference makes a reference to an object of a kind.
func reference(kind ownership.Kind, name string, uid ownership.UID, blocking ownership.Flag) ownership.Reference {
	version := "v1"
	if kind.Group != "" {
		version = kind.Group + "/v1"
	}
	return ownership.Reference{APIVersion: version, Kind: kind.Kind, Name: name, UID: uid, BlockOwnerDeletion: blocking}
}

func refText(ref client.Ref) string {
	return ref.Namespace + "/" + shortOf(ref.Kind) + "/" + ref.Name
}

func ownersText(owners []ownership.Reference) string {
	var b strings.Builder
	for i, r := range owners {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s/%s#%s%s", shortOf(r.OwnerKind()), r.Name, number(r.UID), [...]string{"", "-", "!"}[r.BlockOwnerDeletion])
	}
	return b.String()
}

func versionText(v *version) string {
	text := fmt.Sprintf("%s #%s@%d %s", refText(client.RefOf(v.Object)), number(v.UID), v.revision, v.Phase)
	if len(v.Owners) > 0 {
		text += " owners=" + ownersText(v.Owners)
	}
	if len(v.Finalizers) > 0 {
		text += " finalizers=" + strings.Join(v.Finalizers, ",")
	}
	return text
}

// String returns the step as a line of a schedule.
func (s Step) String() string {
	var b strings.Builder
	b.WriteString(string(s.Op))
	if s.Ref.Name != "" {
		b.WriteString(" " + refText(s.Ref))
	}
	if s.UID != "" {
		b.WriteString(" #" + number(s.UID))
	}
	field := func(name, value string) {
		if value != "" {
			b.WriteString(" " + name + "=" + value)
		}
	}
	field("owners", ownersText(s.Owners))
	field("finalizers", strings.Join(s.Finalizers, ","))
	field("policy", string(s.Policy))
	field("kind", s.Kind)
	field("failure", s.Failure)
	if s.Stale > 0 {
		field("stale", strconv.Itoa(s.Stale))
	}
	return b.String()
}

// Parse reads a schedule from its text. It skips empty lines and lines that begin with #.
func Parse(text string) (Schedule, error) {
	var schedule Schedule
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || line[0] == '#':
			continue
		case line == "newest":
			schedule.Settings.Newest = true
			continue
		case line == "piecemeal":
			schedule.Settings.Piece = 1
			continue
		case line == "admission":
			schedule.Settings.Admission = true
			continue
		}
		step, err := parseStep(line)
		if err != nil {
			return schedule, fmt.Errorf("line %d: %q: %w", n, line, err)
		}
		schedule.Steps = append(schedule.Steps, step)
	}
	return schedule, lines.Err()
}

func parseStep(line string) (Step, error) {
	words := strings.Fields(line)
	step := Step{Op: Op(words[0])}
	for _, word := range words[1:] {
		name, value, isField := strings.Cut(word, "=")
		var err error
		switch {
		case isField:
			err = step.setField(name, value)
		case word[0] == '#':
			step.UID, err = parseUID(word[1:])
		default:
			step.Ref, err = parseRef(word)
		}
		if err != nil {
			return step, err
		}
	}
	return step, nil
}

func (s *Step) setField(name, value string) (err error) {
	switch name {
	case "owners":
		for text := range strings.SplitSeq(value, ",") {
			owner, err := parseOwner(text)
			if err != nil {
				return err
			}
			s.Owners = append(s.Owners, owner)
		}
	case "finalizers":
		s.Finalizers = strings.Split(value, ",")
	case "policy":
		s.Policy = verdict.Propagation(value)
	case "kind":
		s.Kind = value
	case "failure":
		s.Failure = value
	case "stale":
		s.Stale, err = strconv.Atoi(value)
	default:
		return fmt.Errorf("unknown field %q", name)
	}
	return err
}

func parseUID(text string) (ownership.UID, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return "", fmt.Errorf("UID %q is no number", text)
	}
	return uidOf(n), nil
}

func parseRef(text string) (client.Ref, error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return client.Ref{}, fmt.Errorf("object %q is not namespace/kind/name", text)
	}
	return client.Ref{Namespace: parts[0], Kind: kindOf(parts[1]), Name: parts[2]}, nil
}

func parseOwner(text string) (ownership.Reference, error) {
	flag := ownership.Unset
	switch text[max(0, len(text)-1):] {
	case "!":
		flag, text = ownership.True, text[:len(text)-1]
	case "-":
		flag, text = ownership.False, text[:len(text)-1]
	}
	where, id, _ := strings.Cut(text, "#")
	kind, name, ok := strings.Cut(where, "/")
	uid, err := parseUID(id)
	if !ok || err != nil {
		return ownership.Reference{}, fmt.Errorf("owner %q is not kind/name#n", text)
	}
	return reference(kindOf(kind), name, uid, flag), nil
}
