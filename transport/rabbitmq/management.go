package rabbitmq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/amqperror"
)

const (
	// managementTimeout bounds one request to the management API.
	managementTimeout = 10 * time.Second

	// managementLag is how long a node may take to know a queue of another node, and how
	// long its own errors may last: a node fails to list queues if any queue is deleted
	// during the listing.
	managementLag   = 3 * time.Second
	managementPause = managementLag / 10

	// mostAnswer bounds the size of an answer of the management API.
	mostAnswer = 16 << 20
)

// queryManagement asks the management API how a queue was declared and which policies apply
// to it. The answer is up to date. The statistics, which include the policy in force, can
// be ten seconds old and are not used.
func (t *Transport) queryManagement(ctx context.Context, vhost, queue string) (*queueInfo, error) {
	m, err := t.managementClient()
	if err != nil {
		return nil, err
	}
	q, err := m.queue(ctx, vhost, queue)
	if err != nil {
		return nil, err
	}
	info := &queueInfo{fromManagement: true, kind: q.Type, durable: q.Durable, autoDelete: q.AutoDelete, exclusive: q.Exclusive}
	if text, ok := q.Arguments[limitArgument]; ok {
		var n int
		if err := json.Unmarshal(text, &n); err != nil {
			return nil, transport.Permanent(fmt.Errorf("the queue %q has the argument %s %s, which is no number", queue, limitArgument, text))
		}
		info.limit = &n
	}
	if q.Type != Quorum.argument() {
		return info, nil
	}
	if q.Policy != "" {
		list, err := m.policies(ctx, "policies", vhost)
		if err != nil {
			return nil, err
		}
		for _, p := range list {
			if p.Name == q.Policy {
				info.policies = append(info.policies, p)
			}
		}
	}
	list, err := m.policies(ctx, "operator-policies", vhost)
	if err != nil {
		return nil, err
	}
	if p := operatorPolicy(list, queue); p != nil {
		info.policies = append(info.policies, p)
	}
	return info, nil
}

// operatorPolicy returns the operator policy that applies to a quorum queue, or nil.
// RabbitMQ does not document its choice among policies of equal priority; operatorsPolicy
// assumes the lowest limit.
func operatorPolicy(list []*policy, queue string) *policy {
	var found *policy
	for _, p := range list {
		p.isOperator = true
		if !p.appliesTo(queue, Quorum) {
			continue
		}
		if found == nil || p.Priority > found.Priority || p.Priority == found.Priority && hasLowerLimit(p, found) {
			found = p
		}
	}
	return found
}

func hasLowerLimit(a, b *policy) bool {
	x, has := a.limit()
	y, other := b.limit()
	return has && (!other || x < y)
}

// managementClient is a client of the management plugin's API.
type managementClient struct {
	client *http.Client
	base   *url.URL // without the user
	user   *url.Userinfo
}

// managementClient returns a client for a few requests: it keeps no connection.
func (t *Transport) managementClient() (*managementClient, error) {
	base, err := readManagementURL(t.cfg.ManagementURL)
	if err != nil {
		return nil, transport.Permanent(err)
	}
	secure := t.cfg.TLS.Clone()
	if secure == nil && t.hosts[0].tls != nil { // the URL's options apply to both, except the name in the certificate
		secure = t.hosts[0].tls.Clone()
		secure.ServerName = ""
	}
	m := &managementClient{base: base, user: base.User, client: &http.Client{
		Timeout: managementTimeout,
		Transport: &http.Transport{
			Proxy:             http.ProxyFromEnvironment,
			TLSClientConfig:   secure,
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	base.User = nil
	return m, nil
}

// managedQueue is a queue as the API shows it.
type managedQueue struct {
	Name       string                     `json:"name"`
	Type       string                     `json:"type"`
	Durable    bool                       `json:"durable"`
	AutoDelete bool                       `json:"auto_delete"`
	Exclusive  bool                       `json:"exclusive"`
	Arguments  map[string]json.RawMessage `json:"arguments"`
	Policy     string                     `json:"policy"` // "" or absent: none
}

// queue returns an existing queue. It searches a list, because the API's answer for a
// single queue lacks the policy until there are statistics.
func (m *managementClient) queue(ctx context.Context, vhost, queue string) (*managedQueue, error) {
	query := url.Values{
		"disable_stats": {"true"},
		"use_regex":     {"true"},
		"name":          {"^" + regexp.QuoteMeta(queue) + "$"},
		"page":          {"1"},
		"page_size":     {"10"},
	}
	until := time.Now().Add(managementLag)
	for {
		var page struct {
			Items []*managedQueue `json:"items"`
		}
		if err := m.get(ctx, &page, query, "queues", vhost); err != nil {
			return nil, err
		}
		at := slices.IndexFunc(page.Items, func(q *managedQueue) bool { return q.Name == queue })
		if at >= 0 {
			return page.Items[at], nil
		}
		if time.Now().After(until) {
			return nil, transport.Permanent(fmt.Errorf("the broker has the queue %q, but the management API at %s does not know it: "+
				"set Config.ManagementURL to that of the same broker", queue, m.base))
		}
		if err := pauseManagement(ctx); err != nil {
			return nil, err
		}
	}
}

func pauseManagement(ctx context.Context) error {
	select {
	case <-time.After(managementPause):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// policies returns the policies, or the operator policies, of a virtual host.
func (m *managementClient) policies(ctx context.Context, kind, vhost string) (list []*policy, err error) {
	return list, m.get(ctx, &list, nil, kind, vhost)
}

// transientError is a transient failure of the API: the same request may succeed later.
type transientError struct{ error }

func (e transientError) Unwrap() error { return e.error }

// get requests something of a virtual host, and retries for managementLag while the API
// itself fails. Any other error says what is wrong with Config.ManagementURL.
func (m *managementClient) get(ctx context.Context, into any, query url.Values, what, vhost string) error {
	for until := time.Now().Add(managementLag); ; {
		err := m.getOnce(ctx, into, query, what, vhost)
		if _, passes := errors.AsType[transientError](err); !passes || time.Now().After(until) {
			return err
		}
		if pauseManagement(ctx) != nil {
			return err
		}
	}
}

// setLimit makes a policy with a delivery limit.
func (m *managementClient) setLimit(ctx context.Context, vhost string, p *policy, limit int) error {
	body, err := json.Marshal(map[string]any{
		"pattern": p.Pattern, "apply-to": p.ApplyTo, "priority": p.Priority,
		"definition": map[string]int{limitKey: limit},
	})
	if err != nil {
		return err
	}
	return m.request(ctx, http.MethodPut, body, nil, nil, "policies", vhost, p.Name)
}

// getOnce makes one GET request.
func (m *managementClient) getOnce(ctx context.Context, into any, query url.Values, what, vhost string) error {
	return m.request(ctx, http.MethodGet, nil, into, query, what, vhost)
}

// request makes one request about a kind of object in a virtual host, optionally about the
// one with a name. It decodes the answer to a GET request into into.
func (m *managementClient) request(ctx context.Context, method string, body []byte, into any, query url.Values, what, vhost string, name ...string) error {
	path := []string{"api", what, url.PathEscape(vhost)}
	for _, n := range name {
		path = append(path, url.PathEscape(n))
	}
	u := m.base.JoinPath(path...)
	u.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return transport.Permanent(fmt.Errorf("Config.ManagementURL: %w", err))
	}
	password, _ := m.user.Password()
	request.SetBasicAuth(m.user.Username(), password)
	response, err := m.client.Do(request)
	if err != nil {
		if wrong, ok := errors.AsType[*url.Error](err); ok {
			err = wrong.Err // its other fields are the URL and the operation
		}
		return fmt.Errorf("the management API at %s (Config.ManagementURL) cannot be reached: %w", m.base, amqperror.OfDial(err, false))
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	answer, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer))
	if err != nil {
		return fmt.Errorf("the management API at %s broke off its answer: %w", m.base, err)
	}
	if method != http.MethodGet && response.StatusCode/100 == 2 {
		return nil
	}
	if response.StatusCode != http.StatusOK {
		return m.statusError(response, answer, what, vhost)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return transport.Permanent(fmt.Errorf("%s (Config.ManagementURL) does not answer like the management API of RabbitMQ 3.10 or later: %w", m.base, err))
	}
	return nil
}

// statusError returns the error for a status other than 200.
func (m *managementClient) statusError(response *http.Response, answer []byte, what, vhost string) error {
	var said struct {
		Reason string `json:"reason"`
	}
	reason := response.Status
	if json.Unmarshal(answer, &said) == nil && said.Reason != "" {
		reason += ": " + strings.TrimSpace(said.Reason)
	}
	err := fmt.Errorf("the management API at %s (Config.ManagementURL) answers %s", m.base, reason)
	switch code := response.StatusCode; {
	case response.Request.Method == http.MethodPut && (code == http.StatusUnauthorized || code == http.StatusForbidden):
		return transport.Permanent(fmt.Errorf("%w: the user %q does not have the tag policymaker, which making a policy needs (rabbitmqctl set_user_tags)", err, m.user.Username()))
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return transport.Permanent(fmt.Errorf("%w: the user %q, or its password, is not the right one, has none of the tags management and monitoring "+
			"(rabbitmqctl set_user_tags), or has no permissions in the virtual host %q (rabbitmqctl set_permissions; empty ones will do)", err, m.user.Username(), vhost))
	case code == http.StatusNotFound:
		return transport.Permanent(fmt.Errorf("%w to /api/%s: it has no virtual host %q, so it is another broker's, or it is no management API", err, what, vhost))
	case code >= 500, code == http.StatusTooManyRequests:
		return transientError{err}
	}
	return transport.Permanent(err)
}
