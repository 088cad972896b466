// Package management has a client of the API of the management plugin.
package management

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/amqperror"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/deliverylimit"
)

const (
	// Lag is how long a node may take to know a queue of another node, and how long its own
	// errors may last: a node fails to list queues if any queue is deleted during the
	// listing.
	Lag = 3 * time.Second

	// timeout bounds one request.
	timeout = 10 * time.Second

	// maxAnswer bounds the size of an answer.
	maxAnswer = 16 << 20
)

// Client asks the API at a URL.
type Client struct {
	client *http.Client
	base   *url.URL // without the user
	user   *url.Userinfo
	source string // of the URL, for errors
}

// NewClient returns a client for a few requests: it keeps no connection. The URL includes
// the user. Errors name its source, such as "Config.ManagementURL".
func NewClient(u *url.URL, source string, secure *tls.Config) *Client {
	base := *u
	base.User = nil
	return &Client{base: &base, user: u.User, source: source, client: &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			Proxy:             http.ProxyFromEnvironment,
			TLSClientConfig:   secure,
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Queue is a queue as the API shows it.
type Queue struct {
	Name       string                     `json:"name"`
	Type       string                     `json:"type"`
	Durable    bool                       `json:"durable"`
	AutoDelete bool                       `json:"auto_delete"`
	Exclusive  bool                       `json:"exclusive"`
	Arguments  map[string]json.RawMessage `json:"arguments"`
	Policy     string                     `json:"policy"` // "" or absent: none
}

// Queue returns an existing queue. It searches a list, because the API's answer for a
// single queue lacks the policy until there are statistics.
func (m *Client) Queue(ctx context.Context, vhost, queue string) (*Queue, error) {
	query := url.Values{
		"disable_stats": {"true"},
		"use_regex":     {"true"},
		"name":          {"^" + regexp.QuoteMeta(queue) + "$"},
		"page":          {"1"},
		"page_size":     {"10"},
	}
	deadline := time.Now().Add(Lag)
	for {
		var page struct {
			Items []*Queue `json:"items"`
		}
		if err := m.get(ctx, &page, query, "queues", vhost); err != nil {
			return nil, err
		}
		at := slices.IndexFunc(page.Items, func(q *Queue) bool { return q.Name == queue })
		if at >= 0 {
			return page.Items[at], nil
		}
		if time.Now().After(deadline) {
			return nil, transport.Permanent(fmt.Errorf("the broker has the queue %q, but the management API at %s does not know it: "+
				"set Config.ManagementURL to that of the same broker", queue, m.base))
		}
		if err := Pause(ctx); err != nil {
			return nil, err
		}
	}
}

// Queues returns all queues of a virtual host.
func (m *Client) Queues(ctx context.Context, vhost string) ([]*Queue, error) {
	const pageSize = 500 // the API's limit
	var all []*Queue
	for number := 1; ; number++ {
		var page struct {
			Items []*Queue `json:"items"`
			Pages int      `json:"page_count"`
		}
		query := url.Values{"disable_stats": {"true"}, "sort": {"name"}, "page": {strconv.Itoa(number)}, "page_size": {strconv.Itoa(pageSize)}}
		if err := m.get(ctx, &page, query, "queues", vhost); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if number >= page.Pages {
			return all, nil
		}
	}
}

// Pause waits before the next request about something that the API does not show yet.
func Pause(ctx context.Context) error {
	select {
	case <-time.After(Lag / 10):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Policies returns the policies of a virtual host.
func (m *Client) Policies(ctx context.Context, vhost string) ([]*deliverylimit.Policy, error) {
	return m.policies(ctx, "policies", vhost)
}

// OperatorPolicies returns the operator policies of a virtual host.
func (m *Client) OperatorPolicies(ctx context.Context, vhost string) ([]*deliverylimit.Policy, error) {
	return m.policies(ctx, "operator-policies", vhost)
}

func (m *Client) policies(ctx context.Context, kind, vhost string) ([]*deliverylimit.Policy, error) {
	var list []*deliverylimit.Policy
	err := m.get(ctx, &list, nil, kind, vhost)
	return list, err
}

// transientError is a transient failure of the API: the same request may succeed later.
type transientError struct{ error }

func (e transientError) Unwrap() error { return e.error }

// get requests something of a virtual host, and retries for Lag while the API itself fails.
// Any other error explains the mistake in the URL.
func (m *Client) get(ctx context.Context, into any, query url.Values, object, vhost string) error {
	for deadline := time.Now().Add(Lag); ; {
		err := m.getOnce(ctx, into, query, object, vhost)
		if _, passes := errors.AsType[transientError](err); !passes || time.Now().After(deadline) {
			return err
		}
		if Pause(ctx) != nil {
			return err
		}
	}
}

// SetLimit makes a policy with a delivery limit.
func (m *Client) SetLimit(ctx context.Context, vhost string, p *deliverylimit.Policy, limit int) error {
	body, err := json.Marshal(map[string]any{
		"pattern": p.Pattern, "apply-to": p.ApplyTo, "priority": p.Priority,
		"definition": map[string]int{deliverylimit.Key: limit},
	})
	if err != nil {
		return err
	}
	return m.request(ctx, http.MethodPut, body, nil, nil, "policies", vhost, p.Name)
}

// DeletePolicy deletes a policy. One that does not exist is no error.
func (m *Client) DeletePolicy(ctx context.Context, vhost, name string) error {
	return m.request(ctx, http.MethodDelete, nil, nil, nil, "policies", vhost, name)
}

// getOnce makes one GET request.
func (m *Client) getOnce(ctx context.Context, into any, query url.Values, object, vhost string) error {
	return m.request(ctx, http.MethodGet, nil, into, query, object, vhost)
}

// request makes one request about a kind of object in a virtual host, optionally about the
// one with a name. It decodes the answer to a GET request into into.
func (m *Client) request(ctx context.Context, method string, body []byte, into any, query url.Values, object, vhost string, name ...string) error {
	path := []string{"api", object, url.PathEscape(vhost)}
	for _, n := range name {
		path = append(path, url.PathEscape(n))
	}
	u := m.base.JoinPath(path...)
	u.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return transport.Permanent(fmt.Errorf("%s: %w", m.source, err))
	}
	password, _ := m.user.Password()
	request.SetBasicAuth(m.user.Username(), password)
	response, err := m.client.Do(request)
	if err != nil {
		if wrong, ok := errors.AsType[*url.Error](err); ok {
			err = wrong.Err // its other fields are the URL and the operation
		}
		return fmt.Errorf("the management API at %s (%s) cannot be reached: %w", m.base, m.source, amqperror.OfDial(err, "", false))
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("the management API at %s broke off its answer: %w", m.base, err)
	}
	if method != http.MethodGet && response.StatusCode/100 == 2 || method == http.MethodDelete && response.StatusCode == http.StatusNotFound {
		return nil
	}
	if response.StatusCode != http.StatusOK {
		return m.statusError(response, answer, object, vhost)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return transport.Permanent(fmt.Errorf("%s (%s) does not answer like the management API of RabbitMQ 3.10 or later: %w", m.base, m.source, err))
	}
	return nil
}

// statusError returns the error for a status other than 200.
func (m *Client) statusError(response *http.Response, answer []byte, object, vhost string) error {
	var said struct {
		Reason string `json:"reason"`
	}
	reason := response.Status
	if json.Unmarshal(answer, &said) == nil && said.Reason != "" {
		reason += ": " + strings.TrimSpace(said.Reason)
	}
	err := fmt.Errorf("the management API at %s (%s) answers %s", m.base, m.source, reason)
	switch code := response.StatusCode; {
	case response.Request.Method != http.MethodGet && (code == http.StatusUnauthorized || code == http.StatusForbidden):
		return transport.Permanent(fmt.Errorf("%w: the user %q does not have the tag policymaker, which a change of policies needs (rabbitmqctl set_user_tags)", err, m.user.Username()))
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return transport.Permanent(fmt.Errorf("%w: the user %q, or its password, is not the right one, has none of the tags management and monitoring "+
			"(rabbitmqctl set_user_tags), or has no permissions in the virtual host %q (rabbitmqctl set_permissions; empty ones will do)", err, m.user.Username(), vhost))
	case code == http.StatusNotFound:
		return transport.Permanent(fmt.Errorf("%w to /api/%s: it has no virtual host %q, so it is another broker's, or it is no management API", err, object, vhost))
	case code >= 500, code == http.StatusTooManyRequests:
		return transientError{err}
	}
	return transport.Permanent(err)
}
