package report

import "time"

// RefusedObject is an object that the server refuses to delete or to change, with the last refusal.
type RefusedObject struct {
	Kind      string `json:"kind"` // "ReplicaSet.apps"
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       UID    `json:"uid"`
	// Action is what was refused.
	Action Action `json:"action"`
	// By is the sort of the refuser: "policy", "mutating-policy", "webhook", "unreachable-webhook", "conversion",
	// "quota", "protection", "rbac", "server" or "failure".
	By string `json:"by"`
	// Refuser names the policy, the webhook, the quota, the kind that is converted, or the user without a right.
	Refuser string `json:"refuser,omitempty"`
	// Binding is the binding of a policy.
	Binding string `json:"binding,omitempty"`
	// Message has the words of the refuser.
	Message string `json:"message,omitempty"`
	// Since is the time of the first refusal, and Last of the last one.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	// Count is the number of refusals since then.
	Count int `json:"count"`
}

// RefusedCount is the number of objects of a kind that refusers of one sort refuse.
type RefusedCount struct {
	Kind    string `json:"kind"`
	By      string `json:"by"`
	Objects int    `json:"objects"`
}
