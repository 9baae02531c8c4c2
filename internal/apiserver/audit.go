package apiserver

import (
	"io"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit/policy"
	genericapiserver "k8s.io/apiserver/pkg/server"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"
)

// audit has every request written to w, a line of JSON each: who asked for what, when,
// and what was answered, but no bodies (level Metadata). Questions for the server's health
// are left out. A line is written before the next request of the same connection is
// read, not from a queue: queues drop under load, when the log is needed most.
func audit(base *genericapiserver.Config, w io.Writer) {
	base.AuditBackend = auditlog.NewBackend(w, auditlog.FormatJson, auditv1.SchemeGroupVersion)
	base.AuditPolicyRuleEvaluator = policy.NewPolicyRuleEvaluator(&auditinternal.Policy{
		OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived},
		Rules: []auditinternal.PolicyRule{
			{Level: auditinternal.LevelNone, NonResourceURLs: []string{"/healthz*", "/livez*", "/readyz*"}},
			{Level: auditinternal.LevelMetadata},
		},
	})
}
