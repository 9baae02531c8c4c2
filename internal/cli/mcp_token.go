package cli

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/coppice-dev/coppice/internal/apiserver/keyfile"
)

// shortestToken is the smallest number of bytes of a token.
const shortestToken = 20

// token returns the token of HTTP clients, and the path of its file. It makes a token if there is no file. It refuses a
// file that other users may read: they may have read it already.
func (f *mcpHTTP) token() (token, path string, err error) {
	if path = f.tokenFile; path == "" {
		dir, err := os.UserConfigDir()
		if err != nil {
			return "", "", fmt.Errorf("find the token: %w; name a file with --token-file", err)
		}
		path = filepath.Join(dir, "coppice", "mcp.token")
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		token, err := makeToken(path)
		return token, path, err
	}
	token, err = readToken(path)
	return token, path, err
}

// makeToken makes a token in a new file, or reads the token that another process has stored meanwhile.
func makeToken(path string) (string, error) {
	token := rand.Text()
	switch err := keyfile.Create(path, []byte(token+"\n")); {
	case errors.Is(err, os.ErrExist):
		return readToken(path)
	case err != nil:
		return "", fmt.Errorf("store a new token: %w", err)
	}
	return token, nil
}

func readToken(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", fmt.Errorf("--token-file: %w", err)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("--token-file: other users may read %s: remove it, so that the next start makes a new token", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if len(token) < shortestToken || strings.ContainsAny(token, " \n") {
		return "", fmt.Errorf("--token-file: %s has no token, which is one word of at least %d bytes: remove the file, so that the next start makes one", path, shortestToken)
	}
	return token, nil
}

// withTLS returns a listener that serves TLS with a certificate.
func withTLS(listener net.Listener, certFile, keyFile string) (net.Listener, error) {
	certificate, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of --tls-cert-file: %w", err)
	}
	return tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"}}), nil
}
