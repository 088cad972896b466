package rabbitmq_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	testserver "github.com/reprise-go/reprise/internal/testserver/rabbitmq"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// tokenKey is the key that signs tokens of OAuth 2.
const tokenKey = "a key that only the test and its broker know"

// token returns a token with all rights that expires.
func token(t *testing.T, expires time.Time) string {
	t.Helper()
	part := func(value any) string {
		text, err := json.Marshal(value)
		if err != nil {
			t.Error(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	signed := part(map[string]string{"alg": "HS256", "typ": "JWT", "kid": "test"}) + "." + part(map[string]any{
		"sub": "app", "aud": "rabbitmq", "exp": expires.Unix(),
		"scope": []string{"rabbitmq.read:*/*", "rabbitmq.write:*/*", "rabbitmq.configure:*/*"},
	})
	mac := hmac.New(sha256.New, []byte(tokenKey))
	mac.Write([]byte(signed))
	return signed + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// withTokens is a server that accepts tokens.
func withTokens(t *testing.T, release testserver.Release) *site {
	t.Helper()
	s := newSite(t, testserver.StartFor(t, testserver.Config{Release: release, Plugins: []string{"rabbitmq_auth_backend_oauth2"}}))
	s.evalNumber(t, `begin
		ok = application:set_env(rabbitmq_auth_backend_oauth2, resource_server_id, <<"rabbitmq">>),
		ok = application:set_env(rabbitmq_auth_backend_oauth2, key_config, [{default_key, <<"test">>}, {signing_keys, #{<<"test">> =>
			{map, #{<<"kty">> => <<"oct">>, <<"kid">> => <<"test">>, <<"alg">> => <<"HS256">>, <<"k">> => <<"`+base64.RawURLEncoding.EncodeToString([]byte(tokenKey))+`">>}}}}]),
		ok = application:set_env(rabbit, auth_backends, [rabbit_auth_backend_internal, rabbit_auth_backend_oauth2]),
		1 end.`)
	return s
}

// An open connection gets the next token before its own expires, and goes on.
func TestCredentials_TokensAreRenewed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a server with another plugin: not in short runs")
	}
	for _, release := range rabbitmq.Releases() {
		t.Run(release.String(), func(t *testing.T) {
			t.Parallel()
			s := withTokens(t, release)
			u, err := url.Parse(s.PasswordURL(s.vhost))
			if err != nil {
				t.Fatal(err)
			}
			u.User = nil
			const validity = 10 * time.Second
			var calls atomic.Int64
			var last atomic.Pointer[time.Time]
			transport := s.open(t, rabbitmq.Config{URLs: []string{u.String()}, Credentials: func(context.Context) (user, password string, expires time.Time, err error) {
				calls.Add(1)
				end := time.Now().Add(validity).Truncate(time.Second)
				last.Store(&end)
				return "app", token(t, end), end, nil
			}})
			provision(t, transport, "billing")
			w := &watch{}
			r := consume(t, transport, core.ReceiverConfig{Queue: "billing", ConnectionChanged: w.ConnectionChanged})
			mustSend(t, transport, numbered("billing", 0, 1)...)
			if err := next(t, r, 1)[0].Complete(t.Context()); err != nil {
				t.Fatal(err)
			}
			first, connections := *last.Load(), s.connections(t, "")
			before := calls.Load()
			awaitTrue(t, "the first tokens have expired, and each connection has got two more", func() bool {
				return time.Now().After(first) && calls.Load() >= before+2*int64(connections)
			})
			mustSend(t, transport, numbered("billing", 1, 1)...)
			if err := next(t, r, 1)[0].Complete(t.Context()); err != nil {
				t.Error(err)
			}
			if now := s.connections(t, ""); now != connections || len(w.all()) > 0 {
				t.Errorf("%d connections, %d before; the observer was told of %v", now, connections, w.all())
			}
		})
	}
}

// Without a new token the connection ends with its token, which is reported.
func TestCredentials_TokenExpires(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a server with another plugin: not in short runs")
	}
	s := withTokens(t, testserver.V4)
	u, err := url.Parse(s.PasswordURL(s.vhost))
	if err != nil {
		t.Fatal(err)
	}
	u.User = nil
	var sealed atomic.Bool
	transport := s.open(t, rabbitmq.Config{URLs: []string{u.String()}, Credentials: func(ctx context.Context) (user, password string, expires time.Time, err error) {
		if sealed.Load() {
			return "", "", time.Time{}, context.DeadlineExceeded
		}
		end := time.Now().Add(5 * time.Second).Truncate(time.Second)
		return "app", token(t, end), end, nil
	}})
	provision(t, transport, "billing")
	w := &watch{}
	r := consume(t, transport, core.ReceiverConfig{Queue: "billing", ConnectionChanged: w.ConnectionChanged})
	sealed.Store(true)
	awaitTrue(t, "the missing token is reported", func() bool { return w.said("Config.Credentials") })
	sealed.Store(false)
	awaitSend(t, transport, numbered("billing", 0, 1)...)
	if err := next(t, r, 1)[0].Complete(t.Context()); err != nil {
		t.Error(err)
	}
}
