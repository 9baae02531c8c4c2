package demo

import "strings"

// Question is a question to an audience before a command runs. When the step has ended, exactly one choice holds in
// the view: that choice is right.
type Question struct {
	Asks    string
	Choices []Choice
}

// Choice is something that may happen.
type Choice struct {
	Says  string
	Holds func(*View) bool
}

// Right returns the number of the choice that holds in a view. ok is false unless exactly one holds.
func (q Question) Right(v *View) (choice int, ok bool) {
	found := 0
	for n, c := range q.Choices {
		if c.Holds(v) {
			choice = n
			found++
		}
	}
	return choice, found == 1
}

// inWhichOrder returns a question about the order in which a deployment and its pods are deleted.
func inWhichOrder(asks string) *Question {
	return &Question{asks, []Choice{
		{"The pods go first, the deployment last", func(v *View) bool { return v.WentInOrder("Pod", "ReplicaSet", "Deployment") }},
		{"The deployment goes first, the pods last", func(v *View) bool { return v.WentInOrder("Deployment", "ReplicaSet", "Pod") }},
		{"Only the deployment goes, and the pods run on", func(v *View) bool {
			return len(v.Gone("Deployment")) == 1 && len(v.All("Pod")) > 0 && len(v.Gone("Pod")) == 0
		}},
	}}
}

func whatOfOrphans() *Question {
	sets := func(v *View, owners int) bool {
		all := v.All("ReplicaSet")
		return len(all) == 1 && len(all[0].Owners) == owners
	}
	return &Question{"What becomes of the replica set, and of its pods?", []Choice{
		{"They go with the deployment", func(v *View) bool { return len(v.Gone("ReplicaSet")) == 1 }},
		{"They stay, and name no owner any more", func(v *View) bool { return sets(v, 0) }},
		{"They stay, and still name the deployment as their owner", func(v *View) bool { return sets(v, 1) }},
	}}
}

func whatOfTheStubborn() *Question {
	return &Question{"Both have three seconds to end, and one of them ignores the signal. What becomes of that one?", []Choice{
		{"It ends by itself, with the other", func(v *View) bool { return wentWith(v, "stubborn", "exit code 0") }},
		{"It is killed when the three seconds are over", func(v *View) bool { return wentWith(v, "stubborn", "exit code 137") }},
		{"It stays until somebody deletes it by force", func(v *View) bool {
			_, there := v.Find("Pod", "stubborn")
			return there
		}},
	}}
}

func whatIsLeft() *Question {
	return &Question{"A config map in this namespace has a finalizer that no controller removes. Which objects remain?", []Choice{
		{"Everything: nothing goes while something is held", func(v *View) bool {
			return len(v.Gone("Pod")) == 0 && len(v.Gone("Namespace")) == 0
		}},
		{"The config map, the role, and the namespace with a reason in its status", heldNamespace},
		{"Nothing: a namespace takes all of its contents along", func(v *View) bool { return len(v.Gone("Namespace")) == 1 }},
	}}
}

// Text returns the announcement of a step without line breaks.
func (s Step) Text() string { return strings.ReplaceAll(s.Tell, "\n", " ") }
