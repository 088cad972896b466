package sdkclient

import (
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/transport"
)

// Config says where the service is, and how to sign in. Its fields are those of the adapter's Config.
type Config struct {
	Namespace        string
	Credential       azcore.TokenCredential
	ConnectionString string // a secret; in place of Namespace and Credential
	Options          azservicebus.ClientOptions
}

// String returns the configuration without secrets.
func (c *Config) String() string { return c.Host() }

// Host returns the host name of the namespace, from either field, and "" if it is none: a
// connection string in the wrong field has a key.
func (c *Config) Host() string {
	if host := c.rawHost(); IsHost(host) {
		return host
	}
	return ""
}

func (c *Config) rawHost() string {
	if c.Namespace != "" {
		return c.Namespace
	}
	for part := range strings.SplitSeq(c.ConnectionString, ";") {
		if name, value, _ := strings.Cut(part, "="); strings.EqualFold(strings.TrimSpace(name), "Endpoint") {
			if u, err := url.Parse(value); err == nil {
				return u.Host
			}
		}
	}
	return ""
}

// IsHost reports whether a text is a host name or an IP address, with or without a port.
func IsHost(text string) bool {
	u := url.URL{Host: text}
	name := u.Hostname()
	if net.ParseIP(name) != nil {
		return true
	}
	if len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
		}) {
			return false
		}
	}
	return true
}

// PlainText returns the host name of another machine to which connections are not encrypted, and "" if there is none. How
// the application's own function connects is not known.
func (c *Config) PlainText() string {
	addr, _, secure := c.dialed()
	host, _, err := net.SplitHostPort(addr)
	if err != nil || secure || c.Options.NewWebSocketConn != nil || transport.IsLocalHost(host) {
		return ""
	}
	return host
}

// dialed returns the address of the service, the name in its certificate, and whether it
// uses TLS, which the emulator does not.
func (c *Config) dialed() (addr, name string, secure bool) {
	u := &url.URL{Host: c.Host()}
	name, secure = u.Hostname(), !c.IsEmulator()
	if c.Options.CustomEndpoint != "" {
		u.Host = c.Options.CustomEndpoint
	}
	port := u.Port()
	switch {
	case port != "":
	case secure:
		port = "5671"
	default:
		port = "5672"
	}
	return net.JoinHostPort(u.Hostname(), port), name, secure
}

// IsEmulator reports whether the connection string is an emulator's.
func (c *Config) IsEmulator() bool {
	for part := range strings.SplitSeq(c.ConnectionString, ";") {
		if name, value, _ := strings.Cut(part, "="); strings.EqualFold(strings.TrimSpace(name), "UseDevelopmentEmulator") {
			is, err := strconv.ParseBool(value)
			return is && err == nil
		}
	}
	return false
}
