package rabbitmq_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	testserver "github.com/reprise-go/reprise/internal/testserver/rabbitmq"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// Check and OpenReceiver return errors that waiting does not fix, promptly, with words that
// help and without the password.
func TestCredentials_RefusalIsReturned(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		const wrong = "wr0ng-secret"
		with := func(raw, user, password, vhost string) string {
			u, err := url.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			u.User, u.Path, u.RawPath = url.UserPassword(user, password), "/"+vhost, ""
			return u.String()
		}
		trusted := x509.NewCertPool()
		if !trusted.AppendCertsFromPEM(s.CA()) {
			t.Fatal("the server's CA is no certificate")
		}
		scheme := func(raw, scheme string) string { return scheme + raw[strings.Index(raw, "://"):] }
		plain, secured := s.PasswordURL(s.vhost), s.TLSURL(s.vhost)
		stranger := "stranger." + s.vhost
		s.manage(t, "PUT", "/api/users/"+stranger, map[string]string{"password": wrong, "tags": ""})
		t.Cleanup(func() { s.deleteUser(t, stranger) })
		for name, c := range map[string]struct {
			cfg  rabbitmq.Config
			says []string
		}{
			"a wrong password":       {rabbitmq.Config{URLs: []string{with(plain, testserver.User, wrong, s.vhost)}}, []string{"refused the user \"reprise\" or its password", "authenticate_user"}},
			"an unknown user":        {rabbitmq.Config{URLs: []string{with(plain, "unknown", wrong, s.vhost)}}, []string{"refused the user \"unknown\" or its password", "authenticate_user"}},
			"an unknown vhost":       {rabbitmq.Config{URLs: []string{with(plain, testserver.User, testserver.Password, "nowhere")}}, []string{"nowhere"}},
			"a vhost without rights": {rabbitmq.Config{URLs: []string{with(plain, stranger, wrong, s.vhost)}}, []string{s.vhost, stranger}},
			"an unknown authority":   {rabbitmq.Config{URLs: []string{secured}}, []string{"certificate"}},
			"another host's name":    {rabbitmq.Config{URLs: []string{secured}, TLS: &tls.Config{RootCAs: trusted, ServerName: "example.org"}}, []string{"example.org"}},
			"a client's certificate": {rabbitmq.Config{URLs: []string{secured}, TLS: &tls.Config{RootCAs: trusted, GetClientCertificate: selfSigned(t)}},
				[]string{"refused the client's certificate", "certfile"}},
			"one with TLS 1.2": {rabbitmq.Config{URLs: []string{secured}, TLS: &tls.Config{RootCAs: trusted, GetClientCertificate: selfSigned(t), MaxVersion: tls.VersionTLS12}},
				[]string{"refused the client's certificate", "certfile"}},
			"TLS on a plain port":     {rabbitmq.Config{URLs: []string{scheme(plain, "amqps")}}, []string{"TLS"}},
			"no TLS on a port of TLS": {rabbitmq.Config{URLs: []string{scheme(secured, "amqp")}}, []string{"TLS", "amqps://"}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				transport := s.open(t, c.cfg)
				for name, try := range map[string]func(context.Context) error{
					"Check": func(ctx context.Context) error {
						return transport.Check(ctx, core.Topology{InputQueue: "billing", Queues: []string{"billing"}})
					},
					"OpenReceiver": func(ctx context.Context) error {
						_, err := transport.OpenReceiver(ctx, core.ReceiverConfig{Queue: "billing", Mode: core.TransactionReceiveOnly, MaxInFlight: 1})
						return err
					},
				} {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					err := try(ctx)
					cancel()
					if errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s waited: %v", name, err)
						continue
					}
					saysAll(t, err, append(c.says, "rabbitmq: ", "127.0.0.1:")...)
					if err != nil && (strings.Contains(err.Error(), wrong) || strings.Contains(err.Error(), testserver.Password)) {
						t.Errorf("%s shows the password: %v", name, err)
					}
				}
			})
		}
		t.Run("the right way", func(t *testing.T) {
			s.provisioned(t, rabbitmq.Config{URLs: []string{secured}, TLS: &tls.Config{RootCAs: trusted}}, "billing")
		})
	})
}

// selfSigned shows a certificate that no broker trusts, for any request of the broker.
func selfSigned(t *testing.T) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, certificate, certificate, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	shown := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return shown, nil }
}

// A network or broker that fails during the login looks like a broker that refuses
// credentials: it hangs up after a while, without a word.
func TestCredentials_CutLoginIsAnOutage(t *testing.T) {
	t.Parallel()
	b, _ := through(t)
	transport := b.proxied(t, "billing")
	w := &watch{}
	r := consume(t, transport, core.ReceiverConfig{Queue: "billing", ConnectionChanged: w.ConnectionChanged})
	mechanism := []byte("PLAIN") // is in what answers the broker's greeting
	struck := b.proxy.LoseReply(mechanism, []byte("never sent"))
	b.proxy.Cut()
	awaitTrue(t, "the login gets no answer", func() bool { return b.proxy.Connections() > 0 })
	time.Sleep(2500 * time.Millisecond) // as long as somebody who is refused waits, or nearly
	b.proxy.Cut()
	select {
	case <-struck:
		t.Fatal("the broker sent a message that it never sends")
	default:
	}
	awaitSend(t, transport, numbered("billing", 0, 1)...)
	if body := string(next(t, r, 1)[0].Incoming().Body); body != "0" {
		t.Errorf("message %s came, want 0", body)
	}
	if w.said("refused the user") {
		t.Errorf("an outage was taken for a refusal: %v", w.all())
	}
}

// The limit is free again when other connections end, as after a network failure whose end
// the broker has not noticed.
func TestCredentials_ConnectionLimitIsAnOutage(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		s.provisioned(t, rabbitmq.Config{}, "billing")
		for name, limit := range map[string]string{
			"of the vhost": "/api/vhost-limits/" + s.vhost + "/max-connections",
			"of the user":  "/api/user-limits/limited." + s.vhost + "/max-connections",
		} {
			t.Run(name, func(t *testing.T) {
				limited := s.user(t, "limited", ".*", ".*", ".*")
				s.manage(t, "PUT", limit, map[string]int{"value": 0})
				w := &watch{}
				transport := s.open(t, rabbitmq.Config{URLs: []string{limited}})
				opened := make(chan error, 1)
				go func() {
					r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "billing", Mode: core.TransactionReceiveOnly, MaxInFlight: 1, ConnectionChanged: w.ConnectionChanged})
					if err == nil {
						err = r.Close(t.Context())
					}
					opened <- err
				}()
				awaitTrue(t, "the observer is told of the limit", func() bool { return len(opened) > 0 || w.said("limit", "set_user_limits") })
				s.manage(t, "DELETE", limit, nil)
				select {
				case err := <-opened:
					if err != nil {
						t.Errorf("OpenReceiver while the limit of connections is reached = %v", err)
					}
				case <-time.After(patience):
					t.Error("OpenReceiver does not return though the limit has gone")
				}
			})
		}
	})
}
