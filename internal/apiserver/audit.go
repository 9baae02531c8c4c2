package apiserver

import (
	"fmt"
	"io"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit/policy"
	genericapiserver "k8s.io/apiserver/pkg/server"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"
)

// applyAudit makes the server write an audit event for each request to w, as a line of JSON. The policy in
// the file applies, or else level Metadata without health checks: the user, the request, the time and the
// status of the response, but no bodies. A line is written before the next request of the same connection
// is read, not through a queue: queues drop events under load, when the log is needed most.
func applyAudit(base *genericapiserver.Config, w io.Writer, file string) error {
	rules := &auditinternal.Policy{
		OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived},
		Rules: []auditinternal.PolicyRule{
			{Level: auditinternal.LevelNone, NonResourceURLs: []string{"/healthz*", "/livez*", "/readyz*"}},
			{Level: auditinternal.LevelMetadata},
		},
	}
	if file != "" {
		var err error
		if rules, err = policy.LoadPolicyFromFile(file); err != nil {
			return fmt.Errorf("load the audit policy: %w", err)
		}
	}
	base.AuditBackend = auditlog.NewBackend(w, auditlog.FormatJson, auditv1.SchemeGroupVersion)
	base.AuditPolicyRuleEvaluator = policy.NewPolicyRuleEvaluator(rules)
	return nil
}
