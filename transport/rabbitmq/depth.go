package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/amqperror"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/management"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/names"
)

// Depth implements queues.DepthReader by a passive declaration, for which the user needs no right but that to the virtual host.
// Ready and Receivers are true at the same moment. Receivers are the queue's consumers, of which a receiver has several or, while
// it is paused, none. AMQP does not tell how many messages consumers have, and delayed messages wait in queues that all share:
// Locked and Delayed are -1.
func (t *Transport) Depth(ctx context.Context, queue string) (queues.Depth, error) {
	depth, err := t.depth(ctx, queue)
	if err != nil {
		return queues.Depth{}, fmt.Errorf("rabbitmq: count the messages of %q: %w", queue, transport.Unavailable(ctx, amqperror.Explain(err), amqperror.IsTransient))
	}
	return depth, nil
}

func (t *Transport) depth(ctx context.Context, name string) (queues.Depth, error) {
	if err := t.life.Err(ctx); err != nil {
		return queues.Depth{}, err
	}
	queue, err := names.Queue(name)
	if err != nil {
		return queues.Depth{}, err
	}
	q, err := query(ctx, t, func(ch *amqp.Channel) (amqp.Queue, error) {
		return ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	})
	if err != nil {
		return queues.Depth{}, explainExclusive(queue, err)
	}
	return queues.Depth{Ready: q.Messages, Locked: -1, Delayed: -1, Receivers: q.Consumers, Exact: true}, nil
}

// ListQueues implements queues.Lister: the queues of the virtual host, without those of delayed messages, streams, and queues that
// end with a connection. It asks the management API at Config.ManagementURL, or else at the usual port of the hosts of Config.URLs
// as the same user: 15671 with TLS where the URL has TLS, 15672 without. The user needs the tag management or monitoring. Without
// ManagementURL it returns an error matching errors.ErrUnsupported if that does not answer, because AMQP does not list queues.
func (t *Transport) ListQueues(ctx context.Context) ([]string, error) {
	addresses, err := t.listQueues(ctx)
	if err != nil {
		return nil, fmt.Errorf("rabbitmq: list queues: %w", transport.Unavailable(ctx, amqperror.Explain(err), amqperror.IsTransient))
	}
	return addresses, nil
}

func (t *Transport) listQueues(ctx context.Context) (addresses []string, err error) {
	if err := t.life.Err(ctx); err != nil {
		return nil, err
	}
	var all []*management.Queue
	if t.cfg.ManagementURL == "" {
		all, err = t.queuesAtUsualPort(ctx)
	} else {
		var m *management.Client
		if m, err = t.managementClient(); err == nil {
			all, err = m.Queues(ctx, t.hosts[0].uri.Vhost)
		}
	}
	if err != nil {
		return nil, err
	}
	for _, q := range all {
		if _, err := names.Queue(q.Name); err == nil && !q.Exclusive && q.Type != streamType {
			addresses = append(addresses, q.Name)
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses), nil // a queue that is created moves others to the next page
}

// streamType is the type of queues whose messages are read by position and not consumed.
const streamType = "stream"

// The usual ports of the management API.
const (
	managementPort    = 15672
	managementPortTLS = 15671
)

// queuesAtUsualPort asks the management API of the hosts of Config.URLs, until one answers.
func (t *Transport) queuesAtUsualPort(ctx context.Context) ([]*management.Queue, error) {
	var last error
	for _, host := range t.hosts {
		uri := host.uri
		_, err := t.logIn(ctx, &uri)
		if err != nil {
			return nil, err
		}
		if uri.Username == "" || userOf([]brokerHost{*host}) == "" && t.cfg.Credentials == nil {
			last = errors.New("the user has no password, but a certificate")
			continue
		}
		u := t.usualManagementURL(host)
		u.User = url.UserPassword(uri.Username, uri.Password)
		all, err := management.NewClient(u, "at the usual port", t.managementTLS(host)).Queues(ctx, uri.Vhost)
		if err == nil || ctx.Err() != nil {
			return all, err
		}
		last = err
	}
	return nil, transport.Permanent(fmt.Errorf("AMQP does not list queues, and the management API does not: %w; to fix: enable the plugin (rabbitmq-plugins enable rabbitmq_management), "+
		"give the user the tag management (rabbitmqctl set_user_tags), and set Config.ManagementURL where the plugin has another port: %w", last, errors.ErrUnsupported))
}

// usualManagementURL returns the URL of the management API of a host, without the user.
func (t *Transport) usualManagementURL(host *brokerHost) *url.URL {
	scheme, port := "http", t.managementPort
	if host.tls != nil {
		scheme, port = "https", t.managementPortTLS
	}
	return &url.URL{Scheme: scheme, Host: net.JoinHostPort(host.uri.Host, strconv.Itoa(port))}
}
