//go:build darwin || linux

package sbserver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
)

// token is a client's right to an entity (page service-bus-amqp-protocol-guide, "Claims-based
// authorization").
type token struct {
	stop func() bool // ends the timer
}

// sharedAccess is the type of tokens that a shared access key signs.
const sharedAccess = "servicebus.windows.net:sastoken"

// putToken answers a request on $cbs.
func (c *client) putToken(r *request) response {
	if op := r.property("operation"); op != "put-token" {
		return refusal(amqp10.Errorf(amqp10.ErrNotImplemented, "operation '%v' is unknown on $cbs", op))
	}
	audience, _ := r.property("name").(string)
	kind, _ := r.property("type").(string)
	text, _ := r.message.Value.(string)
	c.perform(operation{
		op: OpToken, link: r.link,
		run: func() *amqp10.Error {
			if err := c.server.checkToken(audience, kind, text); err != nil {
				return &amqp10.Error{Condition: amqp10.ErrUnauthorizedAccess, Description: err.Error()}
			}
			c.keepToken(audience, c.server.tokenEnd(r.property("expiration"), text))
			return nil
		},
		reply: func(err *amqp10.Error) {
			if err != nil {
				r.reply(refusal(err))
				return
			}
			r.reply(response{status: 202, description: "Accepted"})
		},
	})
	return response{}
}

// checkToken returns an error if a token is invalid.
func (s *Server) checkToken(audience, kind, text string) error {
	s.mu.Lock()
	refuse := s.refuse
	s.mu.Unlock()
	if refuse != nil {
		if err := refuse(audience, text); err != nil {
			return err
		}
	}
	if s.cfg.Key == "" || kind != sharedAccess {
		return nil
	}
	return s.checkSignature(text)
}

// checkSignature checks a shared access signature (page service-bus-sas, "Generate a
// Shared Access Signature token"). The error does not contain the right one.
func (s *Server) checkSignature(text string) error {
	fields := signatureFields(text)
	mac := hmac.New(sha256.New, []byte(s.cfg.Key))
	fmt.Fprintf(mac, "%s\n%s", fields["sr"], fields["se"])
	signature, err := url.QueryUnescape(fields["sig"])
	if err != nil {
		return errors.New("InvalidSignature: The token has an invalid signature.")
	}
	given, err := base64.StdEncoding.DecodeString(signature)
	if err != nil || fields["skn"] != s.cfg.KeyName || !hmac.Equal(given, mac.Sum(nil)) {
		return errors.New("InvalidSignature: The token has an invalid signature.")
	}
	if end, err := strconv.ParseInt(fields["se"], 10, 64); err != nil || time.Unix(end, 0).Before(s.Broker().Now()) {
		return errors.New("ExpiredToken: The token is expired.")
	}
	return nil
}

// signatureFields returns the fields of "SharedAccessSignature sr=...&sig=...&se=...&skn=...",
// which stay escaped.
func signatureFields(text string) map[string]string {
	fields := map[string]string{}
	_, text, _ = strings.Cut(text, " ")
	for field := range strings.SplitSeq(text, "&") {
		name, value, _ := strings.Cut(field, "=")
		fields[name] = value
	}
	return fields
}

// tokenEnd returns the time at which a token expires; zero means never.
func (s *Server) tokenEnd(expiration any, text string) time.Time {
	var end time.Time
	seconds, ok := integer(expiration)
	if text, isText := expiration.(string); isText {
		var err error
		seconds, err = strconv.ParseInt(text, 10, 64)
		ok = err == nil
	}
	if !ok || seconds == 0 {
		seconds, _ = strconv.ParseInt(signatureFields(text)["se"], 10, 64)
	}
	if at, isTime := expiration.(time.Time); isTime {
		end = at
	} else if seconds > 0 {
		end = time.Unix(seconds, 0)
	}
	if s.cfg.TokenLifetime > 0 {
		if limit := s.Broker().Now().Add(s.cfg.TokenLifetime); end.IsZero() || limit.Before(end) {
			end = limit
		}
	}
	return end
}

// audiencePath returns the path of an audience such as amqp://host/q, in lower case.
func audiencePath(audience string) string { return strings.ToLower(entityPath(audience)) }

// keepToken stores the right to an audience until it expires.
func (c *client) keepToken(audience string, end time.Time) {
	path := audiencePath(audience)
	t := &token{stop: func() bool { return true }}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.tokens[path]; old != nil {
		old.stop()
	}
	c.tokens[path] = t
	if end.IsZero() {
		return
	}
	clock := c.server.clock()
	t.stop = clock.AfterFunc(end.Sub(clock.Now()), func() { c.expireToken(path, t, end) })
}

// expireToken ends a token and detaches the links that rely on it.
func (c *client) expireToken(path string, t *token, end time.Time) {
	c.mu.Lock()
	if c.tokens[path] != t {
		c.mu.Unlock()
		return
	}
	delete(c.tokens, path)
	c.mu.Unlock()
	for _, l := range c.linksOf(func(entity string) bool { return c.authorize(entity) != nil }) {
		l.Detach(amqp10.Errorf(amqp10.ErrUnauthorizedAccess, "ExpiredToken: The token is expired. Expiration time: %s.", end.UTC().Format(time.RFC3339)))
	}
}

// authorize returns an error if the client may not attach a link to a node: it needs a
// token for the node, or for one that contains the node.
func (c *client) authorize(node string) *amqp10.Error {
	path := strings.ToLower(node)
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if c.tokens[path] != nil {
			return nil
		}
		if path == "" {
			return amqp10.Errorf(amqp10.ErrUnauthorizedAccess, "Unauthorized access. 'Send' or 'Listen' claim(s) are required to perform this operation. Resource: '%s'.", node)
		}
		path = path[:max(0, strings.LastIndexByte(path, '/'))]
	}
}
