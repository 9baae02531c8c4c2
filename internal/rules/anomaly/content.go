package anomaly

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"
)

// content has the facts of an object that rules use.
type content struct {
	owner, generateName, labels string
	generation                  int64
	deleting                    bool
	entries                     map[string]bool
	words                       map[string]bool // the values of its labels and annotations
	digest                      uint64          // the same for objects that differ in times alone
	all                         map[string]any
}

func contentOf(object map[string]any) content {
	c := content{entries: map[string]bool{}, words: map[string]bool{}, all: object}
	metadata, _ := object["metadata"].(map[string]any)
	c.generateName, _ = metadata["generateName"].(string)
	c.generation, _ = metadata["generation"].(int64)
	_, c.deleting = metadata["deletionTimestamp"]
	finalizers, _ := metadata["finalizers"].([]any)
	for _, f := range finalizers {
		c.entries[fmt.Sprintf("the finalizer %v", f)] = true
	}
	owners, _ := metadata["ownerReferences"].([]any)
	for _, o := range owners {
		reference, _ := o.(map[string]any)
		uid, _ := reference["uid"].(string)
		c.entries["the owner reference to "+uid] = true
		if controller, _ := reference["controller"].(bool); controller {
			c.owner = uid
		}
	}
	for _, field := range []struct{ key, singular string }{{"labels", "label"}, {"annotations", "annotation"}} {
		values, _ := metadata[field.key].(map[string]any)
		for key, value := range values {
			c.entries["the "+field.singular+" "+key] = true
			if word := fmt.Sprint(value); len(word) <= mostText {
				c.words[word] = true
			}
		}
		if field.key == "labels" {
			c.labels = fmt.Sprint(values)
		}
	}
	h := fnv.New64a()
	digest(object, "", func(text string) { h.Write([]byte(text)); h.Write([]byte{0}) })
	c.digest = h.Sum64()
	return c
}

// untold are fields of metadata that change with each write, or that follow from others.
func untold() []string {
	return []string{"resourceVersion", "managedFields", "generation", "observedGeneration"}
}

// digest writes all values of a part of an object in a fixed order, but for times.
func digest(value any, path string, write func(string)) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if !slices.Contains(untold(), key) {
				digest(v[key], path+"."+key, write)
			}
		}
	case []any:
		for _, item := range v {
			digest(item, path+"[]", write)
		}
	case string:
		if _, err := time.Parse(time.RFC3339Nano, v); err == nil {
			v = "a time"
		}
		write(path + "=" + v)
	default:
		write(fmt.Sprint(path, "=", v))
	}
}

// text returns all values of an object in lines.
func (c content) text() string {
	var all strings.Builder
	digest(c.all, "", func(line string) {
		_, value, _ := strings.Cut(line, "=")
		all.WriteString(value)
		all.WriteByte('\n')
	})
	return all.String()
}

// refersTo reports whether a label or an annotation of an object has the UID or the name of another one.
func (l *life) refersTo(other *life) bool {
	return l.words[other.uid] || l.words[other.name.Name] || l.words[other.name.Namespace+"/"+other.name.Name]
}
