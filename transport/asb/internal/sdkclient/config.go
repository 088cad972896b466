package sdkclient

import (
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
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

// Host returns the host name of the namespace, from either field.
func (c *Config) Host() string {
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
