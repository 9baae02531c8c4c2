package restriction

import "testing"

// The server sends metadata in an encoding that the client accepts, and in JSON if the client names none.
func TestMetadataAs(t *testing.T) {
	const (
		json     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
		protobuf = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	)
	for _, test := range []struct {
		accepted []string
		want     string
	}{
		{nil, json},
		{[]string{"*/*"}, json},
		{[]string{"application/json"}, json},
		{[]string{"application/vnd.kubernetes.protobuf"}, protobuf},
		{[]string{"application/vnd.kubernetes.protobuf,application/json"}, protobuf + "," + json},
		{[]string{"application/vnd.kubernetes.protobuf", "application/json"}, protobuf + "," + json},
	} {
		if got := metadataAs("PartialObjectMetadata", test.accepted); got != test.want {
			t.Errorf("%q: got %q, want %q", test.accepted, got, test.want)
		}
	}
}
