// Package stage plays the stories of package demo on a control plane.
//
// Play creates the namespace of a story, watches the objects in it, and performs the
// steps: it announces the step, runs the command, and waits, with a deadline, until the
// step's expectations have become true. Meanwhile a Display shows the events of the
// watches: on a terminal as a tree that is redrawn in place, elsewhere as one line per
// change (display.go), in a browser by a page, which also asks its users to guess (browser.go).
package stage

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/coppice-dev/coppice/internal/cli/demo"
)

// Display shows a story to a person.
type Display interface {
	// Say prints lines that stay.
	Say(lines ...string)
	// Change is called after every change of the view, with a line that describes it, or ""
	// if the tree does not show it.
	Change(line string, v *demo.View)
	// Pause gives the reader time to read.
	Pause(ctx context.Context)
}

// Audience guesses the effect of a command before it runs.
type Audience interface {
	// Ask asks the question of a step, and returns after a guess.
	Ask(ctx context.Context, s demo.Step)
	// Judge is called at the end of the step, with the view.
	Judge(ctx context.Context, s demo.Step, v *demo.View) error
}

// Config describes where and how a story is played.
type Config struct {
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	// Kubectl runs kubectl in a namespace, in a directory that has the manifests, and returns
	// its output.
	Kubectl func(ctx context.Context, namespace string, args []string) (string, error)
	Display Display
	// Audience, if set, answers the questions of the steps.
	Audience Audience
	// Timeout bounds each step.
	Timeout time.Duration
}

// Play plays a story. The error names in one line the expectation that did not become true.
func Play(ctx context.Context, c Config, s demo.Story) error {
	if err := c.prepare(ctx, s.Namespace); err != nil {
		return fmt.Errorf("story %s: %w", s.Name, err)
	}
	ctx, stop := context.WithCancel(ctx)
	p := play{Config: c, story: s, view: demo.NewView(), all: collections(c.Dynamic, s.Namespace), events: make(chan event), lost: make(chan error, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.lost <- followAll(ctx, p.all, p.events)
	}()
	defer func() {
		stop()
		<-ended
	}()
	for i, step := range s.Steps {
		if err := p.step(ctx, step); err != nil {
			return fmt.Errorf("story %s, step %d: %w", s.Name, i+1, err)
		}
	}
	return nil
}

// prepare creates the namespace of a story, and waits until pods can be created in it.
func (c Config) prepare(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := c.Client.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create its namespace: %w", err)
	}
	return c.defaultAccount(ctx, namespace)
}

// defaultAccount waits for the default service account, which pods need.
func (c Config) defaultAccount(ctx context.Context, namespace string) error {
	accounts := c.Client.CoreV1().ServiceAccounts(namespace)
	list, err := accounts.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list service accounts: %w", err)
	}
	watched, err := accounts.Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, "default").String(), ResourceVersion: list.ResourceVersion,
	})
	if err != nil {
		return fmt.Errorf("watch service accounts: %w", err)
	}
	defer watched.Stop()
	switch _, err := accounts.Get(ctx, "default", metav1.GetOptions{}); {
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("get the default service account: %w", err)
	}
	select {
	case _, ok := <-watched.ResultChan():
		if ok {
			return nil
		}
	case <-ctx.Done():
	}
	return errors.Join(errors.New("its namespace gets no service account"), ctx.Err())
}

// play is a story in progress.
type play struct {
	Config
	story  demo.Story
	view   *demo.View
	all    []collection
	events chan event
	lost   chan error
}

// result is the result of a command.
type result struct {
	out string
	err error
}

// step runs a command, and waits until it has ended and every expectation has become true.
func (p *play) step(ctx context.Context, s demo.Step) error {
	isAsked := p.Audience != nil && s.Question != nil
	if isAsked {
		p.Audience.Ask(ctx, s)
	}
	p.Display.Say("", s.Tell, "$ "+s.Command())
	p.Display.Pause(ctx)
	timed, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	answers := make(chan result, 1)
	go func() {
		out, err := p.Kubectl(timed, p.story.Namespace, s.Kubectl)
		answers <- result{out, err}
	}()
	open, err := p.watch(timed, answers, s.Expect)
	switch {
	case err == nil && isAsked:
		return p.Audience.Judge(ctx, s, p.view)
	case err == nil:
		p.Display.Pause(ctx)
		return nil
	case timed.Err() != nil:
		return missed(timed, p.Timeout, open)
	}
	return fmt.Errorf("%s: %w", s.Command(), err)
}

// watch waits until a command has ended and every expectation has become true. With an error it
// returns the expectations that have not become true.
func (p *play) watch(ctx context.Context, answers <-chan result, open []demo.Expectation) ([]demo.Expectation, error) {
	for running := true; running || len(open) > 0; {
		select {
		case a := <-answers:
			if a.err != nil {
				return open, a.err
			}
			running = false
			p.Display.Say(a.out)
		case e := <-p.events:
			p.take(e)
		case err := <-p.lost:
			return open, errors.Join(errors.New("the watches ended"), err)
		case <-ctx.Done():
			return open, ctx.Err()
		}
		var err error
		if open, err = p.check(ctx, open); err != nil {
			return open, err
		}
	}
	return nil, nil
}

// missed returns the error of a step that took too long.
func missed(ctx context.Context, timeout time.Duration, open []demo.Expectation) error {
	switch {
	case !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return ctx.Err()
	case len(open) == 0:
		return fmt.Errorf("the command did not end within %s", timeout)
	}
	return fmt.Errorf("after %s it is not true that %s", timeout, open[0].Says)
}

// take adds a watch event to the view and shows it.
func (p *play) take(e event) {
	var line string
	if e.removed {
		line = p.view.Remove(e.object)
	} else {
		line = p.view.Put(e.object)
	}
	p.Display.Change(line, p.view)
}

// check announces the expectations that have become true, in their order, and returns the
// others. The last one must hold in lists, too: watches may have missed events.
func (p *play) check(ctx context.Context, open []demo.Expectation) ([]demo.Expectation, error) {
	for len(open) > 0 && open[0].Holds(p.view) {
		if len(open) == 1 {
			objects, err := listAll(ctx, p.all)
			if err != nil {
				return open, err
			}
			if !open[0].Holds(p.view.Listed(objects)) {
				return open, nil
			}
		}
		p.Display.Say("✓ " + open[0].Says)
		open = open[1:]
	}
	return open, nil
}
