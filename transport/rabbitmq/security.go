package rabbitmq

import (
	"fmt"
	"strings"

	"github.com/reprise-go/reprise/transport"
)

// weaknesses returns warnings about connections to other machines that are not encrypted or
// do not verify the server.
func (t *Transport) weaknesses() (texts []string) {
	var plain, unverified []string
	for _, h := range t.hosts {
		switch shown := fmt.Sprintf("%q", h.addr); {
		case transport.IsLocalHost(h.uri.Host) || transport.VerifiesServer(h.tls):
		case h.tls == nil:
			plain = append(plain, shown)
		default:
			unverified = append(unverified, shown)
		}
	}
	const harm = "another machine in the network can read and change messages, and learn the password"
	if len(plain) > 0 {
		texts = append(texts, fmt.Sprintf("connections to RabbitMQ at %s are not encrypted: %s. Begin the URL with amqps://, and name the certificate authority "+
			"in the option cacertfile or in Config.TLS where the system does not know it", strings.Join(plain, ", "), harm))
	}
	if len(unverified) > 0 {
		texts = append(texts, fmt.Sprintf("connections to RabbitMQ at %s do not verify the server: %s. Leave Config.TLS.InsecureSkipVerify false, "+
			"and name the certificate authority in Config.TLS.RootCAs", strings.Join(unverified, ", "), harm))
	}
	if t.cfg.ManagementURL == "" {
		return texts
	}
	u, err := readManagementURL(t.cfg.ManagementURL)
	switch {
	case err != nil || transport.IsLocalHost(u.Hostname()):
	case u.Scheme == "http":
		texts = append(texts, fmt.Sprintf("requests to the management API at %q are not encrypted: another machine in the network can learn the password. "+
			"Begin Config.ManagementURL with https://", u.Host))
	case t.cfg.TLS != nil && !transport.VerifiesServer(t.cfg.TLS):
		texts = append(texts, fmt.Sprintf("requests to the management API at %q do not verify the server: another machine in the network can learn the password. "+
			"Leave Config.TLS.InsecureSkipVerify false, and name the certificate authority in Config.TLS.RootCAs", u.Host))
	}
	return texts
}
