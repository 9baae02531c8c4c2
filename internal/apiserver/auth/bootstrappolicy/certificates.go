package bootstrappolicy

import (
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

const signingRequests = "certificatesigningrequests"

// requestRule allows requesting a certificate and waiting for it.
func requestRule() rbacv1.PolicyRule {
	return rule(certificatesv1.GroupName, slices.Concat(reading(), []string{"create"}), signingRequests)
}

// signerRule allows approving requests for signers, or signing for them.
func signerRule(verb string, signers ...string) rbacv1.PolicyRule {
	return named(rule(certificatesv1.GroupName, []string{verb}, "signers"), signers...)
}

// certificateControllerRules are for the controllers that approve, sign and delete requests, and publish root certificates.
func certificateControllerRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule(certificatesv1.GroupName, slices.Concat(reading(), []string{"delete"}), signingRequests),
		rule(certificatesv1.GroupName, []string{"update"}, signingRequests+"/approval", signingRequests+"/status"),
		signerRule("approve", certificatesv1.KubeAPIServerClientKubeletSignerName),
		signerRule("sign", certificatesv1.KubeAPIServerClientSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName,
			certificatesv1.KubeletServingSignerName),
		rule("authorization.k8s.io", []string{"create"}, "subjectaccessreviews"),
		rule(certificatesv1.GroupName, slices.Concat(reading(), []string{"create", "delete", "update"}), "clustertrustbundles"),
		signerRule("attest", "kubernetes.io/kube-apiserver-serving"),
		rule(certificatesv1.GroupName, slices.Concat(reading(), []string{"delete"}), "podcertificaterequests"),
	}
}
