package bootstrappolicy

import (
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/coppice-dev/coppice/internal/signingrequest"
)

const signingRequests = "certificatesigningrequests"

// requestRule allows to request a certificate and to wait for it.
func requestRule() rbacv1.PolicyRule {
	return rule(certificatesv1.GroupName, slices.Concat(reading(), []string{"create"}), signingRequests)
}

// signerRule allows to approve requests of signers, or to sign for them.
func signerRule(verb string, signers ...string) rbacv1.PolicyRule {
	return named(rule(certificatesv1.GroupName, []string{verb}, "signers"), signers...)
}

// certificateRoles are for those who request and approve certificates. Requests of users with the
// permission nodeclient, for nodes, and of nodes with the permission selfnodeclient, for
// themselves, are approved by the controller. Nobody has these permissions by default.
func certificateRoles() []*rbacv1.ClusterRole {
	const prefix = "system:certificates.k8s.io:"
	create := func(subresource string) rbacv1.PolicyRule {
		return rule(certificatesv1.GroupName, []string{"create"}, signingRequests+"/"+subresource)
	}
	return []*rbacv1.ClusterRole{
		role("system:node-bootstrapper", requestRule()),
		role(prefix+signingRequests+":nodeclient", create("nodeclient")),
		role(prefix+signingRequests+":selfnodeclient", create("selfnodeclient")),
		role(prefix+"legacy-unknown-approver", signerRule("approve", signingrequest.LegacyUnknown)),
		role(prefix+"kubelet-serving-approver", signerRule("approve", certificatesv1.KubeletServingSignerName)),
		role(prefix+"kube-apiserver-client-approver", signerRule("approve", certificatesv1.KubeAPIServerClientSignerName)),
		role(prefix+"kube-apiserver-client-kubelet-approver", signerRule("approve", certificatesv1.KubeAPIServerClientKubeletSignerName)),
	}
}

// certificateControllerRules are for the controller that approves, signs and deletes requests.
func certificateControllerRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule(certificatesv1.GroupName, slices.Concat(reading(), []string{"delete"}), signingRequests),
		rule(certificatesv1.GroupName, []string{"update"}, signingRequests+"/approval", signingRequests+"/status"),
		signerRule("approve", certificatesv1.KubeAPIServerClientKubeletSignerName),
		signerRule("sign", certificatesv1.KubeAPIServerClientSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName,
			certificatesv1.KubeletServingSignerName),
		rule("authorization.k8s.io", []string{"create"}, "subjectaccessreviews"),
	}
}
