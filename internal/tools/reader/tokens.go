package reader

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/metadata"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// tokens reads which Secrets in a namespace have tokens of ServiceAccounts: their metadata only.
func (r *Facts) tokens(ctx context.Context, namespace string) ([]inventory.Token, error) {
	client, err := metadata.NewForConfig(r.config)
	if err != nil {
		return nil, fmt.Errorf("make a client for metadata: %w", err)
	}
	return tokensIn(ctx, client.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(namespace))
}

func tokensIn(ctx context.Context, secrets metadata.ResourceInterface) ([]inventory.Token, error) {
	var tokens []inventory.Token
	options := metav1.ListOptions{
		Limit: classPage, FieldSelector: fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken)).String(),
	}
	for {
		page, err := secrets.List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			o := &page.Items[i]
			tokens = append(tokens, inventory.Token{
				Secret: ownership.UID(o.UID), Account: o.Annotations[corev1.ServiceAccountNameKey], AccountUID: ownership.UID(o.Annotations[corev1.ServiceAccountUIDKey]),
			})
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return tokens, nil
		}
	}
}
