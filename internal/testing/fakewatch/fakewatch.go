// Package fakewatch makes the fake of client-go watch as a server does.
package fakewatch

import (
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// Copy makes the watches of a clientset send copies of its objects. The fake sends the objects that
// it keeps, and informers modify what they receive. Reactors that are added later are not affected.
func Copy(c *fake.Clientset) {
	chain := c.WatchReactionChain
	c.WatchReactionChain = nil
	c.AddWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		for _, reactor := range chain {
			if !reactor.Handles(a) {
				continue
			}
			handled, w, err := reactor.React(a)
			switch {
			case handled && err == nil:
				return true, watch.Filter(w, copied), nil
			case handled:
				return true, nil, err
			}
		}
		return false, nil, nil
	})
}

func copied(e watch.Event) (watch.Event, bool) {
	e.Object = e.Object.DeepCopyObject()
	return e, true
}
