package transport

import (
	"crypto/tls"
	"net"
	"strings"
	"sync"
)

// IsLocalHost reports whether connections to a host stay on the machine: "", localhost, a
// loopback address or, if it begins with a slash, the directory of a Unix socket. The
// host must not include a port.
func IsLocalHost(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	address, _, _ := strings.Cut(host, "%") // the zone of an IPv6 address
	if ip := net.ParseIP(address); ip != nil {
		return ip.IsLoopback()
	}
	return host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") || strings.HasPrefix(host, "/")
}

// VerifiesServer reports whether connections with a TLS configuration verify the server's
// certificate. A nil configuration means connections without TLS.
func VerifiesServer(c *tls.Config) bool {
	return c != nil && (!c.InsecureSkipVerify || c.VerifyPeerCertificate != nil || c.VerifyConnection != nil)
}

// Warnings collects the warnings that an adapter's [core.Describer] returns, each once. The
// zero value has none. It is safe for concurrent use.
type Warnings struct {
	mu    sync.Mutex
	texts []string
}

// Add adds a warning.
func (w *Warnings) Add(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// Take returns the warnings that were added since the last call.
func (w *Warnings) Take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	texts := w.texts
	w.texts = nil
	return texts
}
