package rabbitmq_test

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	testserver "github.com/reprise-go/reprise/internal/testserver/rabbitmq"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

func TestDepth(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		for _, kind := range []rabbitmq.QueueType{rabbitmq.Quorum, rabbitmq.Classic} {
			queue := strings.ToLower(kind.String())
			transport := s.provisioned(t, rabbitmq.Config{QueueType: kind}, queue)
			mustSend(t, transport, numbered(queue, 0, 5)...)
			wantDepth := func(ready, consumers int) {
				t.Helper()
				want := queues.Depth{Ready: ready, Locked: -1, Delayed: -1, Receivers: consumers, Exact: true}
				if got, err := transport.Depth(t.Context(), queue); err != nil || got != want {
					t.Errorf("Depth of a %v queue is %+v, %v; want %+v", kind, got, err, want)
				}
			}
			wantDepth(5, 0)
			r := consume(t, transport, core.ReceiverConfig{Queue: queue, MaxInFlight: 2, MaxDeliveries: 50})
			next(t, r, 2)
			wantDepth(3, 1)
			if err := r.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			awaitTrue(t, "the messages are ready again", func() bool {
				got, err := transport.Depth(t.Context(), queue)
				return err == nil && got.Ready == 5 && got.Receivers == 0
			})
		}
		noRights := s.open(t, rabbitmq.Config{URLs: []string{s.user(t, "none", "", "", "")}})
		if got, err := noRights.Depth(t.Context(), "quorum"); err != nil || got.Ready != 5 {
			t.Errorf("without rights Depth is %+v, %v", got, err)
		}
		if _, err := noRights.Depth(t.Context(), "missing"); !errors.Is(err, core.ErrQueueNotFound) {
			t.Errorf("Depth of a missing queue: %v", err)
		}
	})
}

// usualPorts has a transport look for the management API at its server's port.
func (s *site) usualPorts(t *testing.T, transport *rabbitmq.Transport) *rabbitmq.Transport {
	t.Helper()
	u, err := url.Parse(s.ManagementURL())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	transport.UseManagementPort(port, 1)
	return transport
}

func TestListQueues(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		elsewhere := newSite(t, s.Server)
		elsewhere.provisioned(t, rabbitmq.Config{}, "elsewhere")
		transport := s.withDelays().provisioned(t, rabbitmq.Config{}, "shop", "error")
		s.queue(t, "classic", nil)
		s.queue(t, "stream", amqp.Table{"x-queue-type": "stream"})
		ch := s.channel(t)
		for _, name := range []string{"exclusive", ""} {
			if _, err := ch.QueueDeclare(name, false, false, true, false, nil); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{"classic", "error", "reprise.undelivered", "reprise.unroutable", "shop"}
		for name, transport := range map[string]*rabbitmq.Transport{
			"the usual port": s.usualPorts(t, transport),
			"ManagementURL":  s.open(t, rabbitmq.Config{ManagementURL: s.ManagementURL()}),
		} {
			if got, err := transport.ListQueues(t.Context()); err != nil || !slices.Equal(got, want) {
				t.Errorf("by %s: %q, %v; want %q", name, got, err, want)
			}
		}
	})
}

func TestListQueues_OverPages(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		ch := s.channel(t)
		var want []string
		for i := range 1001 { // a page has 500
			want = append(want, fmt.Sprintf("q%04d", i))
			if _, err := ch.QueueDeclare(want[i], true, false, false, false, nil); err != nil {
				t.Fatal(err)
			}
		}
		got, err := s.open(t, rabbitmq.Config{ManagementURL: s.ManagementURL()}).ListQueues(t.Context())
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%d queues are listed, %v; want %d", len(got), err, len(want))
		}
	})
}

func TestListQueues_Refused(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		s.provisioned(t, rabbitmq.Config{}, "shop")
		for name, transport := range map[string]*rabbitmq.Transport{
			"no tag":      s.usualPorts(t, s.open(t, rabbitmq.Config{URLs: []string{s.user(t, "untagged", ".*", ".*", ".*")}})),
			"no password": s.usualPorts(t, s.open(t, rabbitmq.Config{URLs: []string{s.URL(s.vhost) + "?auth_mechanism=external"}})),
			"no plugin":   s.open(t, rabbitmq.Config{}),
		} {
			if name == "no plugin" {
				transport.UseManagementPort(1, 1)
			}
			_, err := transport.ListQueues(t.Context())
			if !errors.Is(err, errors.ErrUnsupported) || errors.Is(err, core.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
			saysAll(t, err, "rabbitmq_management", "set_user_tags", "Config.ManagementURL")
			if strings.Contains(err.Error(), testserver.Password) || strings.Contains(err.Error(), url.QueryEscape(testserver.Password)) {
				t.Errorf("%s: the error tells the password: %v", name, err)
			}
		}
		wrong := s.open(t, rabbitmq.Config{ManagementURL: "http://app:s3cret@127.0.0.1:1"})
		if _, err := wrong.ListQueues(t.Context()); !errors.Is(err, core.ErrUnavailable) {
			t.Errorf("an API that is down: %v", err)
		}
		if err := wrong.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, counted := wrong.Depth(t.Context(), "shop")
		_, listed := wrong.ListQueues(t.Context())
		if !errors.Is(counted, core.ErrClosed) || !errors.Is(listed, core.ErrClosed) {
			t.Errorf("after Close: %v, %v", counted, listed)
		}
	})
}
