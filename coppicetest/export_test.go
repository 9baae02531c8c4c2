package coppicetest

import "testing"

// Credentials returns the credentials in a kubeconfig.
func Credentials(t *testing.T, path string) (authority, certificate, key []byte) {
	t.Helper()
	a, err := readKubeconfig(path)
	if err != nil {
		t.Fatal(err)
	}
	return a.authority, a.certificate, a.key
}
