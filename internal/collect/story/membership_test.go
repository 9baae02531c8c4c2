package story

import (
	"fmt"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// membershipOf returns a membership with a story for each entry, named after it.
func membershipOf(entries ...*entry) *membership {
	m := newMembership(10)
	for _, e := range entries {
		s := &story{origin: origin{key: e.Name}, last: start.Add(time.Duration(e.last))}
		s.add(e)
		m.add(s, e)
	}
	return &m
}

func TestStoryOfAnObject(t *testing.T) {
	marked, kept := start.UnixNano(), true
	m := membershipOf(
		&entry{Ref: refTo("Deployment.apps/shop/web"), marked: marked},
		&entry{Ref: refTo("Deployment.apps/shop/latest"), marked: marked, last: 1},
		&entry{Ref: refTo("Deployment.apps/shop/staying"), kept: kept},
		&entry{Ref: Ref{Kind: "Namespace", Name: "shop", UID: "shop"}, marked: marked},
		&entry{Ref: Ref{Kind: "Namespace", Name: "removed", UID: "removed"}, marked: marked, gone: marked},
		&entry{Ref: Ref{Kind: "Namespace", Name: "staying", UID: "staying"}, kept: kept},
		&entry{Ref: Ref{Kind: "CustomResourceDefinition.apiextensions.k8s.io", Name: "widgets.x", UID: "definition"}, marked: marked},
	)
	m.addFurther(&story{origin: origin{key: "of further"}}, "further")
	for _, c := range []struct {
		name      string
		object    []string
		namespace ownership.UID
		lag       time.Duration
		want      string
	}{
		{"an owner that goes", []string{"Pod/other/p", "owner=web"}, "", lag, "web"},
		{"the owner that changed last", []string{"Pod/other/p", "owner=web", "owner=latest"}, "", lag, "latest"},
		{"an owner without an entry", []string{"Pod/other/p", "owner=further"}, "", lag, "of further"},
		{"an owner comes before the namespace", []string{"Pod/shop/p", "owner=web"}, "shop", lag, "web"},
		{"an owner that stays has no part in it", []string{"Pod/other/p", "owner=staying"}, "", lag, ""},
		{"the namespace", []string{"Pod/shop/p"}, "", lag, "shop in shop"},
		{"the namespace by its UID", []string{"Pod/shop/p"}, "shop", lag, "shop in shop"},
		{"another namespace of that name", []string{"Pod/shop/p"}, "another", lag, ""},
		{"a namespace that was just removed", []string{"Pod/removed/p"}, "", lag, "removed in removed"},
		{"a namespace that was removed earlier", []string{"Pod/removed/p"}, "", time.Second, ""},
		{"a namespace that was removed, for a request", []string{"Pod/removed/p"}, "", 0, ""},
		{"a namespace that stays", []string{"Pod/staying/p"}, "", lag, ""},
		{"the definition", []string{"Widget.x/other/w"}, "", lag, "widgets.x in definition"},
		{"a kind of the core group has no definition", []string{"Widget/other/w"}, "", lag, ""},
	} {
		s, in := m.storyOf(new(objectOf(c.object)), c.namespace, c.lag, start.Add(time.Second))
		got := ""
		if s != nil {
			got = s.key
		}
		if in != "" {
			got += " in " + string(in)
		}
		if got != c.want {
			t.Errorf("%s: the story is %q, want %q", c.name, got, c.want)
		}
	}
}

func TestMembersWithoutEntryAreBounded(t *testing.T) {
	m := membershipOf(&entry{Ref: refTo("Pod/shop/p")})
	s := &story{}
	for n := range 20 {
		s.further.all++
		m.addFurther(s, ownership.UID(fmt.Sprint(n)))
	}
	if m.further.len() != m.most {
		t.Errorf("%d objects are known, want %d", m.further.len(), m.most)
	}
	m.drop(s)
	if m.further.len() != 0 || len(m.members) != 1 {
		t.Errorf("without the story %d and %d objects are known", m.further.len(), len(m.members))
	}
}

// Objects that a namespace's story takes over beyond the limit are not waited for: nothing would tell that they are gone.
func TestStoryDoesNotWaitForGatheredObjectsWithoutEntry(t *testing.T) {
	b := NewBook()
	for _, name := range []string{"a", "b", "c"} {
		b.Seen(new(objectOf([]string{"Pod/shop/" + name})), "", start)
		b.Gone(new(objectOf([]string{"ConfigMap/shop/of-" + name, "owner=" + name})), "", start)
	}
	b.limits.objects = 3
	b.Seen(new(objectOf([]string{"Namespace/shop"})), "", start)
	for _, name := range []string{"a", "b", "c"} {
		b.Gone(new(objectOf([]string{"Pod/shop/" + name})), "", start)
	}
	b.Gone(new(objectOf([]string{"Namespace/shop"})), "", start)
	list := b.List(nil, start.Add(time.Minute))
	if len(list) != 1 || !list[0].Done || list[0].Waiting != 0 || list[0].Gone != 7 {
		t.Errorf("%+v", list)
	}
}
