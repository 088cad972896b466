package rabbitmq

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/names"
)

// brokerHost is a node of the broker with the settings of connections to it.
type brokerHost struct {
	uri       amqp.URI
	tls       *tls.Config // nil: none. Shared by connections, never changed
	addr      string      // host:port
	heartbeat time.Duration
	timeout   time.Duration // of connecting, up to the end of the AMQP handshake
}

// connectTimeout is the default limit of an attempt to connect.
const connectTimeout = 30 * time.Second

// String returns the endpoint as a URL without secrets.
func (h brokerHost) String() string {
	shown := url.URL{Scheme: h.uri.Scheme, Host: h.addr, Path: "/" + h.uri.Vhost, User: url.User(h.uri.Username)}
	if h.uri.Vhost == "/" {
		shown.Path = "/"
	}
	return shown.String()
}

// GoString returns the same as String.
func (h brokerHost) GoString() string { return h.String() }

// userOf returns the user of all connections, or "" if they differ, or a certificate has the
// name.
func userOf(hosts []brokerHost) string {
	user := hosts[0].uri.Username
	for i := range hosts {
		uri := &hosts[i].uri
		if uri.Username != user || slices.ContainsFunc(uri.AuthMechanism, func(name string) bool { return strings.EqualFold(name, "external") }) {
			return ""
		}
	}
	return user
}

// sasl returns the authentication mechanisms. They are new at every call, because the
// client library wipes the password once a connection is open.
func (h *brokerHost) sasl() []amqp.Authentication {
	if len(h.uri.AuthMechanism) == 0 {
		return []amqp.Authentication{h.uri.PlainAuth()}
	}
	ways := make([]amqp.Authentication, len(h.uri.AuthMechanism))
	for i, mechanism := range h.uri.AuthMechanism {
		switch strings.ToLower(mechanism) {
		case "amqplain":
			ways[i] = h.uri.AMQPlainAuth()
		case "external":
			ways[i] = &amqp.ExternalAuth{}
		default: // readURL accepts no others
			ways[i] = h.uri.PlainAuth()
		}
	}
	return ways
}

// Options of URLs.
const (
	optionCA         = "cacertfile"
	optionCert       = "certfile"
	optionKey        = "keyfile"
	optionServerName = "server_name_indication"
	optionMechanism  = "auth_mechanism"
	optionHeartbeat  = "heartbeat"
	optionTimeout    = "connection_timeout"
	optionChannels   = "channel_max"
)

var (
	tlsOptions = []string{optionCA, optionCert, optionKey, optionServerName}
	mechanisms = []string{"plain", "amqplain", "external"}
)

// minChannels is how many channels a connection must allow at least.
const minChannels = 8

// readURL reads one of Config.URLs, which is called name, and the files that it names. No
// error contains any part of a password.
func (c *Config) readURL(name, text string) (brokerHost, error) {
	u, err := splitURL(name, text, "amqp", "amqps")
	if err != nil {
		return brokerHost{}, err
	}
	if err := checkOptions(name, u); err != nil {
		return brokerHost{}, err
	}
	if c.Credentials != nil {
		switch mechanisms := u.Query()[optionMechanism]; {
		case u.User != nil:
			return brokerHost{}, fmt.Errorf("%s has a user, and Config.Credentials is set; use one of them", name)
		case slices.ContainsFunc(mechanisms, func(m string) bool { return strings.EqualFold(m, "external") }):
			return brokerHost{}, fmt.Errorf("%s: the option %s is external, which needs no password, and Config.Credentials is set; use one of them", name, optionMechanism)
		}
	}
	uri, err := amqp.ParseURI(text)
	if err != nil { // the checks above should catch it; the library's text could contain secrets
		return brokerHost{}, fmt.Errorf("%s cannot be read by the client library", name)
	}
	if len(uri.Vhost) > names.MaxShortString {
		return brokerHost{}, fmt.Errorf("%s: the name of the virtual host has %d bytes, but may have %d at most", name, len(uri.Vhost), names.MaxShortString)
	}
	h := brokerHost{
		uri:       uri,
		addr:      net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port)),
		heartbeat: defaultHeartbeat,
		timeout:   connectTimeout,
	}
	options := u.Query()
	if n, err := strconv.Atoi(options.Get(optionHeartbeat)); err == nil {
		h.heartbeat = time.Duration(n) * time.Second
	}
	if n, err := strconv.Atoi(options.Get(optionTimeout)); err == nil {
		h.timeout = time.Duration(n) * time.Millisecond
	}
	if uri.Scheme == "amqps" {
		if h.tls, err = c.clientTLS(name, &uri); err != nil {
			return brokerHost{}, err
		}
	}
	return h, nil
}

// readManagementURL reads Config.ManagementURL.
func readManagementURL(text string) (*url.URL, error) {
	const name = "Config.ManagementURL"
	u, err := splitURL(name, text, "http", "https")
	switch {
	case err != nil:
		return nil, err
	case u.Host == "":
		return nil, fmt.Errorf("%s names no host; write it as http://user:password@host:15672", name)
	case u.User == nil:
		return nil, fmt.Errorf("%s names no user; write it as http://user:password@host:15672", name)
	case u.RawQuery != "":
		return nil, fmt.Errorf("%s has options, but none is known for it; remove the text after the ?", name)
	}
	return u, nil
}

// redacted returns the URL without secrets.
func redacted(text string) string {
	return transport.RedactURL(text, func(text string) (*url.URL, error) { return splitURL("", text) })
}

// splitURL reads the URL of one host with one of the schemes, or with any.
func splitURL(name, text string, schemes ...string) (*url.URL, error) {
	begin := strings.Join(schemes, ":// or ") + "://"
	u, err := transport.ReadURL(name, text, begin)
	if err != nil {
		return nil, err
	}
	if len(schemes) > 0 && !slices.Contains(schemes, u.Scheme) {
		return nil, fmt.Errorf("%s has the scheme %q; begin it with %s", name, u.Scheme, begin)
	}
	// The last @ of a password that was not percent-encoded can be after its first / or ?.
	if strings.Contains(u.EscapedPath(), "@") || strings.Contains(u.RawQuery, "@") {
		return nil, fmt.Errorf("%s has been split in the wrong place: a / or ? in the user or the password is written as %%2F or %%3F, and an @ anywhere, but for the one before the host, as %%40", name)
	}
	if strings.Contains(text, " ") {
		return nil, fmt.Errorf("%s has a space in it; it is written as %%20", name)
	}
	if strings.Contains(u.Host, ",") {
		return nil, fmt.Errorf("%s names several hosts; write a URL for each", name)
	}
	return u, nil
}

// checkOptions checks the options of a URL of the broker. The client library would ignore
// an unknown option, and its error for a bad value would not name the option. The error
// contains no value, which may be a misplaced secret.
func checkOptions(name string, u *url.URL) error {
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		if pair != "" && !strings.Contains(pair, "=") {
			return fmt.Errorf("%s: options are written as name=value and separated by &; in a value an & is written as %%26", name)
		}
	}
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf(name+": "+format, args...))
	}
	options := u.Query()
	whole := func(option string, minimum, limit int) {
		if !options.Has(option) {
			return
		}
		if n, err := strconv.Atoi(options.Get(option)); err != nil || n < minimum || n > limit {
			wrong("the option %s must be a whole number from %d to %d", option, minimum, limit)
		}
	}
	whole(optionHeartbeat, 1, int(maxHeartbeat/time.Second))
	whole(optionTimeout, 1, int(time.Hour/time.Millisecond))
	whole(optionChannels, minChannels, 1<<16-1)
	for _, mechanism := range options[optionMechanism] {
		if !slices.Contains(mechanisms, strings.ToLower(mechanism)) {
			wrong("the option %s must be one of %s", optionMechanism, strings.Join(mechanisms, ", "))
		}
	}
	if (options.Get(optionCert) == "") != (options.Get(optionKey) == "") {
		wrong("of the options %s and %s only one is set; a client certificate takes both", optionCert, optionKey)
	}
	known := slices.Concat(tlsOptions, []string{optionMechanism, optionHeartbeat, optionTimeout, optionChannels})
	for option, values := range options {
		switch {
		case !slices.Contains(known, option):
			wrong("there is no option %q; there are %s", option, strings.Join(known, ", "))
		case len(values) > 1 && option != optionMechanism:
			wrong("the option %s is there %d times", option, len(values))
		case slices.Contains(tlsOptions, option) && u.Scheme == "amqp":
			wrong("the option %s is for TLS; begin the URL with amqps://", option)
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) }) // options come in any order
	return errors.Join(errs...)
}

// clientTLS returns the TLS configuration for a URL.
func (c *Config) clientTLS(name string, uri *amqp.URI) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.TLS != nil {
		for option, file := range map[string]string{optionCA: uri.CACertFile, optionCert: uri.CertFile} {
			if file != "" {
				return nil, fmt.Errorf("%s has the option %s, and Config.TLS is set; use one of them", name, option)
			}
		}
		cfg = c.TLS.Clone()
	}
	if uri.ServerName != "" {
		cfg.ServerName = uri.ServerName
	}
	if cfg.ServerName == "" {
		cfg.ServerName = uri.Host
	}
	var errs []error
	if uri.CACertFile != "" {
		pem, err := os.ReadFile(uri.CACertFile)
		cfg.RootCAs = x509.NewCertPool()
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: the file of the option %s: %w", name, optionCA, withoutPath(err)))
		case !cfg.RootCAs.AppendCertsFromPEM(pem):
			errs = append(errs, fmt.Errorf("%s: the file of the option %s has no certificate in it (PEM)", name, optionCA))
		}
	}
	if uri.CertFile != "" {
		certificate, err := tls.LoadX509KeyPair(uri.CertFile, uri.KeyFile)
		if err != nil {
			option := optionCert + " or " + optionKey
			if file, ok := errors.AsType[*fs.PathError](err); ok && uri.CertFile != uri.KeyFile {
				option = map[string]string{uri.CertFile: optionCert, uri.KeyFile: optionKey}[file.Path]
			}
			errs = append(errs, fmt.Errorf("%s: the file of the option %s: %w", name, option, withoutPath(err)))
		}
		cfg.Certificates = []tls.Certificate{certificate}
	}
	return cfg, errors.Join(errs...)
}

// withoutPath returns why a file cannot be read, without its path, which is the value of an
// option.
func withoutPath(err error) error {
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		return file.Err
	}
	return err
}

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
