package rabbitmq_test

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// rotation is a user whose password changes.
type rotation struct {
	*site
	user     string
	password atomic.Pointer[string] // that Config.Credentials returns
	calls    atomic.Int64
}

func newRotation(t *testing.T, s *site) *rotation {
	t.Helper()
	r := &rotation{site: s, user: "rotated." + s.vhost}
	s.user(t, "rotated", ".*", ".*", ".*")
	r.set(t, "first-s3cret")
	r.tell("first-s3cret")
	return r
}

// set changes the user's password on the broker.
func (r *rotation) set(t *testing.T, password string) {
	t.Helper()
	r.manage(t, "PUT", "/api/users/"+r.user, map[string]string{"password": password, "tags": ""})
	r.manage(t, "PUT", "/api/permissions/"+r.vhost+"/"+r.user, map[string]string{"configure": ".*", "write": ".*", "read": ".*"})
}

// tell changes the password that the transport gets.
func (r *rotation) tell(password string) { r.password.Store(&password) }

func (r *rotation) config(t *testing.T) rabbitmq.Config {
	t.Helper()
	u, err := url.Parse(r.PasswordURL(r.vhost))
	if err != nil {
		t.Fatal(err)
	}
	u.User = nil
	return rabbitmq.Config{URLs: []string{u.String()}, Credentials: func(context.Context) (user, password string, expires time.Time, err error) {
		r.calls.Add(1)
		return r.user, *r.password.Load(), time.Time{}, nil
	}}
}

// running runs an endpoint that reports the numbers of its messages.
func running(t *testing.T, transport *rabbitmq.Transport) (ep *core.Endpoint, handled chan int) {
	t.Helper()
	ep, err := core.New("billing", transport, core.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	handled = make(chan int, 10)
	core.Handle(ep, askedType, func(_ context.Context, _ *core.Message, body order) error {
		handled <- body.Number
		return nil
	})
	runs(t, ep)
	return ep, handled
}

// awaitHandled sends a message past the transport and waits for its handler.
func awaitHandled(t *testing.T, s *site, handled chan int, body string) {
	t.Helper()
	ask(t, s.channel(t), "", body)
	select {
	case <-handled:
	case <-time.After(patience):
		t.Fatalf("%s is not handled", body)
	}
}

// awaitReport waits until Health reports an outage with all of these words.
func awaitReport(t *testing.T, ep *core.Endpoint, words ...string) {
	t.Helper()
	awaitTrue(t, "Health reports "+strings.Join(words, ", "), func() bool {
		h := ep.Health()
		if !h.Running {
			t.Fatalf("the endpoint has ended: %v", h.RunError)
		}
		if h.Connected || h.ConnectionError == nil {
			return false
		}
		text := h.ConnectionError.Error()
		for _, word := range words {
			if !strings.Contains(text, word) {
				return false
			}
		}
		if strings.Contains(text, "s3cret") {
			t.Errorf("Health shows the password: %s", text)
		}
		return true
	})
}

// A new password is used for the next connection, and the endpoint waits for it.
func TestCredentials_Rotation(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		r := newRotation(t, s)
		transport := s.provisioned(t, r.config(t), "billing", "error")
		ep, handled := running(t, transport)
		awaitHandled(t, s, handled, `{"Number":1}`)
		r.set(t, "second-s3cret")
		r.tell("second-s3cret")
		s.closeConnections(t, "the password has changed")
		awaitHandled(t, s, handled, `{"Number":2}`)
		r.set(t, "third-s3cret") // before the program can know it
		s.closeConnections(t, "the password has changed again")
		awaitReport(t, ep, `the broker refused the user "`+r.user+`"`)
		if err := transport.Send(t.Context(), numbered("billing", 0, 1)...); !errors.Is(err, core.ErrUnavailable) {
			t.Errorf("Send while the password is refused = %v, want ErrUnavailable", err)
		}
		r.tell("third-s3cret")
		awaitHandled(t, s, handled, `{"Number":3}`)
		s.deleteUser(t, r.user)
		s.closeConnections(t, "the user is gone")
		awaitReport(t, ep, r.user)
		r.set(t, "third-s3cret")
		awaitHandled(t, s, handled, `{"Number":4}`)
		awaitTrue(t, "the connection is reported", func() bool { return ep.Health().Connected })
	})
}

// The URL's password cannot change. A running endpoint waits for the broker to accept it.
func TestCredentials_FixedPasswordIsRefusedForAWhile(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		r := newRotation(t, s)
		u, err := url.Parse(s.PasswordURL(s.vhost))
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(r.user, "first-s3cret")
		ep, handled := running(t, s.provisioned(t, rabbitmq.Config{URLs: []string{u.String()}}, "billing", "error"))
		r.set(t, "second-s3cret")
		s.closeConnections(t, "the password has changed")
		awaitReport(t, ep, r.user)
		r.set(t, "first-s3cret")
		awaitHandled(t, s, handled, `{"Number":1}`)
	})
}

// A source of credentials that fails is an outage, also at the start.
func TestCredentials_SourceFails(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		r := newRotation(t, s)
		s.provisioned(t, rabbitmq.Config{}, "billing")
		cfg := r.config(t)
		works, fails := cfg.Credentials, errors.New("the vault is sealed")
		for name, fault := range map[string]func() (string, string, time.Time, error){
			"an error":         func() (string, string, time.Time, error) { return "", "", time.Time{}, fails },
			"expired already":  func() (string, string, time.Time, error) { return r.user, "s3cret", time.Now().Add(-time.Second), nil },
			"a wrong password": func() (string, string, time.Time, error) { return r.user, "wr0ng-s3cret", time.Time{}, nil },
			"a panic":          func() (string, string, time.Time, error) { panic("at the vault") },
		} {
			t.Run(name, func(t *testing.T) {
				var broken atomic.Bool
				cfg.Credentials = func(ctx context.Context) (string, string, time.Time, error) {
					if broken.Load() {
						return fault()
					}
					return works(ctx)
				}
				transport := s.open(t, cfg)
				w := &watch{}
				receiver := consume(t, transport, core.ReceiverConfig{Queue: "billing", ConnectionChanged: w.ConnectionChanged})
				broken.Store(true)
				s.closeConnections(t, "so that they are called again")
				awaitTrue(t, "it is reported", func() bool {
					return w.said("sealed") || w.said(r.user) || w.said("panicked: at the vault")
				})
				broken.Store(false)
				awaitSend(t, transport, numbered("billing", 0, 1)...)
				if err := next(t, receiver, 1)[0].Complete(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// A consumer that has the queue for itself, or a limit, is waited for by an endpoint that
// has run. At a start the exclusive consumer is an error.
func TestRefusals_ThatPass(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		p, address := s.proxy(t)
		for name, c := range map[string]struct {
			queueType rabbitmq.QueueType
			begin     func(t *testing.T, user string) (end func())
			says      []string
		}{
			"an exclusive consumer": {rabbitmq.Classic, func(t *testing.T, _ string) func() {
				ch := s.channel(t)
				awaitTrue(t, "the queue has no other consumer", func() bool {
					_, err := ch.Consume("billing", "", false, true, false, false, nil)
					if err != nil {
						ch = s.channel(t)
					}
					return err == nil
				})
				return func() { _ = ch.Close() }
			}, []string{"in exclusive use", "another consumer"}},
			"the limit of channels": {rabbitmq.Quorum, s.limit("user", "max-channels"), []string{"channels", "set_user_limits"}},
			"the limit of connections of the user": {rabbitmq.Quorum, s.limit("user", "max-connections"),
				[]string{"limit", "set_user_limits"}},
			"the limit of connections of the vhost": {rabbitmq.Quorum, func(t *testing.T, _ string) func() { return s.limit("vhost", "max-connections")(t, s.vhost) },
				[]string{"limit", "set_vhost_limits"}},
			"no right to read": {rabbitmq.Quorum, func(t *testing.T, user string) func() {
				grant := func(read string) {
					s.manage(t, "PUT", "/api/permissions/"+s.vhost+"/"+user, map[string]string{"configure": ".*", "write": ".*", "read": read})
				}
				grant("^$")
				return func() { grant(".*") }
			}, []string{"ACCESS_REFUSED", "set_permissions"}},
		} {
			t.Run(name, func(t *testing.T) {
				user, err := url.Parse(s.user(t, "limited", ".*", ".*", ".*"))
				if err != nil {
					t.Fatal(err)
				}
				user.Host = address
				transport := s.provisioned(t, rabbitmq.Config{URLs: []string{user.String()}, QueueType: c.queueType}, "billing", "error")
				t.Cleanup(func() {
					for _, queue := range []string{"billing", "error"} {
						if _, err := s.channel(t).QueueDelete(queue, false, false, false); err != nil {
							t.Error(err)
						}
					}
				})
				ep, handled := running(t, transport)
				if err := p.Refuse(); err != nil {
					t.Fatal(err)
				}
				p.Cut()
				end := c.begin(t, user.User.Username())
				if err := p.Accept(); err != nil {
					t.Fatal(err)
				}
				awaitReport(t, ep, c.says...)
				end()
				awaitHandled(t, s, handled, `{"Number":1}`)
			})
		}
	})
}

// limit returns how to set a limit of a user or a virtual host to 0.
func (s *site) limit(owner, name string) func(t *testing.T, whose string) (end func()) {
	return func(t *testing.T, whose string) func() {
		path := "/api/" + owner + "-limits/" + whose + "/" + name
		s.manage(t, "PUT", path, map[string]int{"value": 0})
		return func() { s.manage(t, "DELETE", path, nil) }
	}
}

// proxy is a network before the broker, which the test cuts.
func (s *site) proxy(t *testing.T) (p *proxy.Proxy, address string) {
	t.Helper()
	p, err := proxy.New(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p, p.Addr()
}
