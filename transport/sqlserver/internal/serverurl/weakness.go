package serverurl

import (
	"crypto/tls"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/microsoftdriver"
)

// WeaknessOfPgx returns a warning about connections to other machines that do not verify
// the server, or "". The behaviour of a DialFunc is unknown; a caller that replaces pgx's
// connection by its own is responsible for it.
func WeaknessOfPgx(c *pgconn.Config) string {
	if c.AfterNetConnect != nil {
		return ""
	}
	var hosts []string
	var plain, unverified, unnamed bool
	look := func(host string, port uint16, config *tls.Config) {
		nameless := takesAnyName(config)
		if network, _ := pgconn.NetworkAddress(host, port); network == "unix" || transport.IsLocalHost(host) || transport.VerifiesServer(config) && !nameless {
			return
		}
		plain, unverified, unnamed = plain || config == nil, unverified || config != nil && !nameless, unnamed || nameless
		if !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	look(c.Host, c.Port, c.TLSConfig)
	for _, f := range c.Fallbacks {
		look(f.Host, f.Port, f.TLSConfig)
	}
	var text string
	switch {
	case len(hosts) == 0:
		return ""
	case unnamed:
		text = "accept the certificate of any host that a public authority has signed (sslmode=verify-ca without sslrootcert)"
	case !unverified:
		text = "are not encrypted (sslmode=disable)"
	case plain:
		text = "do not verify the server, and are not encrypted where it has no TLS (sslmode=prefer, the default, or allow)"
	default:
		text = "are encrypted, but do not verify the server (sslmode=require without sslrootcert)"
	}
	return fmt.Sprintf("connections to PostgreSQL at %s %s: another machine in the network can read and change messages, and log in as this role. "+
		"Set the option sslmode=verify-full in the URL and, where the system does not know the certificate authority, sslrootcert=FILE", quoted(hosts), text)
}

// takesAnyName reports whether a configuration is pgx's for verify-ca, which compares no host
// name, with the authorities of the system, which sign certificates for everybody. Another
// function that verifies is the application's, and may well compare more.
func takesAnyName(c *tls.Config) bool {
	if c == nil || !c.InsecureSkipVerify || c.RootCAs != nil || c.VerifyConnection != nil || c.VerifyPeerCertificate == nil {
		return false
	}
	verify := runtime.FuncForPC(reflect.ValueOf(c.VerifyPeerCertificate).Pointer())
	return verify != nil && strings.HasPrefix(verify.Name(), reflect.TypeFor[pgconn.Config]().PkgPath()+".")
}

// WeaknessOfMicrosoft does the same for Microsoft SQL Server.
func WeaknessOfMicrosoft(s *microsoftdriver.Server, host string) string {
	if transport.IsLocalHost(host) || host == "." {
		return ""
	}
	if s.Encrypts && transport.VerifiesServer(s.TLS) {
		return ""
	}
	text := "are encrypted, but do not verify the server"
	if !s.Encrypts {
		text = "are not encrypted, but for the login at most"
	}
	return fmt.Sprintf("connections to Microsoft SQL Server at %s %s: another machine in the network can read and change messages, and log in as this user. "+
		"Set the option encrypt=true in the URL, without TrustServerCertificate, and certificate=FILE where the system does not know the certificate authority", quoted([]string{host}), text)
}

func quoted(names []string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(texts, ", ")
}
