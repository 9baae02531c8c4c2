package webhooks

import (
	"strings"
	"testing"
)

// The error says what to configure instead of a Service.
func TestServicesAreNotResolved(t *testing.T) {
	if _, err := (ServiceResolver{}).ResolveEndpoint("ns", "hook", 443); err == nil || !strings.Contains(err.Error(), "url instead of a service") {
		t.Error(err)
	}
}
