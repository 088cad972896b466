package rabbitmq_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	testserver "github.com/reprise-go/reprise/internal/testserver/rabbitmq"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// site is a virtual host of a test's own.
type site struct {
	*testserver.Server
	vhost string
	// delays: its transports can delay messages. The 28 queues for that take the broker
	// more work than all the rest of a usual test.
	delays bool
}

func newSite(t testing.TB, on *testserver.Server) *site {
	return &site{Server: on, vhost: on.NewVHost(t)}
}

// withDelays is for tests of delayed messages, or of their queues.
func (s *site) withDelays() *site {
	s.delays = true
	return s
}

// limits reports whether the broker's quorum queues have a limit by default.
func (s *site) limits() bool { return !strings.HasPrefix(s.Version(), "3.") }

// ofDelayQueues is for tests that need the queues of delayed messages: short runs try delays
// in few, and leave these out.
func ofDelayQueues(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("28 queues for delays: not in short runs")
	}
}

// open returns a transport, by default for the user of all tests.
func (s *site) open(t testing.TB, cfg rabbitmq.Config) *rabbitmq.Transport {
	t.Helper()
	if cfg.URLs == nil {
		cfg.URLs = []string{s.PasswordURL(s.vhost)}
	}
	cfg.NoDelays = cfg.NoDelays || !s.delays
	transport, err := rabbitmq.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = transport.Close(t.Context()) })
	return transport
}

// provisioned returns a transport that has provisioned queues.
func (s *site) provisioned(t testing.TB, cfg rabbitmq.Config, queues ...string) *rabbitmq.Transport {
	t.Helper()
	transport := s.open(t, cfg)
	provision(t, transport, queues...)
	return transport
}

func provision(t testing.TB, transport *rabbitmq.Transport, queues ...string) {
	t.Helper()
	topology := core.Topology{Queues: queues}
	if len(queues) > 0 {
		topology.InputQueue = queues[0]
	}
	if err := transport.Provision(t.Context(), topology); err != nil {
		t.Fatal(err)
	}
}

// channel is one of the bare client library. What the broker refuses closes it.
func (s *site) channel(t testing.TB) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(s.URL(s.vhost))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// queue declares a queue, which is durable.
func (s *site) queue(t testing.TB, name string, arguments amqp.Table) {
	t.Helper()
	if _, err := s.channel(t).QueueDeclare(name, true, false, false, false, arguments); err != nil {
		t.Fatal(err)
	}
}

// manage sends a request to the management API as an administrator.
func (s *site) manage(t testing.TB, method, path string, body any) string {
	t.Helper()
	text := []byte{}
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := s.Manage(t.Context(), method, path, string(text))
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// user makes a user of the virtual host with the rights to configure, write and read, and
// returns the URL to connect as.
func (s *site) user(t testing.TB, name, configure, write, read string) string {
	t.Helper()
	name += "." + s.vhost
	s.manage(t, "PUT", "/api/users/"+name, map[string]string{"password": name, "tags": ""})
	t.Cleanup(func() { s.deleteUser(t, name) })
	s.manage(t, "PUT", "/api/permissions/"+s.vhost+"/"+name, map[string]string{"configure": configure, "write": write, "read": read})
	u, err := url.Parse(s.URL(s.vhost))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(name, name)
	return u.String()
}

// deleteUser is for the end of a test.
func (s *site) deleteUser(t testing.TB, name string) {
	t.Helper()
	if _, err := s.Manage(context.WithoutCancel(t.Context()), "DELETE", "/api/users/"+url.PathEscape(name), ""); err != nil {
		t.Error(err)
	}
}

// policy makes one that sets a delivery limit. A kind is "policies" or
// "operator-policies".
func (s *site) policy(t testing.TB, kind, name, pattern string, priority int, definition map[string]any) {
	t.Helper()
	s.manage(t, "PUT", "/api/"+kind+"/"+s.vhost+"/"+url.PathEscape(name), map[string]any{
		"pattern": pattern, "definition": definition, "priority": priority, "apply-to": "queues",
	})
}

// catalogue is all that there is in the virtual host, a line each.
func (s *site) catalogue(t testing.TB) (lines []string) {
	t.Helper()
	byName := map[string][]string{
		"queues":    {"name", "type", "durable", "auto_delete", "exclusive", "arguments"},
		"exchanges": {"name", "type", "durable", "auto_delete", "internal", "arguments"},
		"bindings":  {"source", "destination", "destination_type", "routing_key", "arguments"},
	}
	for _, kind := range slices.Sorted(maps.Keys(byName)) {
		var list []map[string]any
		if err := json.Unmarshal([]byte(s.manage(t, "GET", "/api/"+kind+"/"+s.vhost, nil)), &list); err != nil {
			t.Fatal(err)
		}
		for _, one := range list {
			line := kind
			for _, key := range byName[kind] {
				line += fmt.Sprintf(" %s=%v", key, one[key])
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// without returns the lines of one list that are not in another.
func without(all, others []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(all), func(line string) bool { return slices.Contains(others, line) }), "\n")
}

// sameCatalogue fails the test if there is more, or less, than was wanted.
func sameCatalogue(t testing.TB, got, want []string) {
	t.Helper()
	if more := without(got, want); more != "" {
		t.Errorf("this is too much:\n%s", more)
	}
	if less := without(want, got); less != "" {
		t.Errorf("this is missing:\n%s", less)
	}
}

// saysAll fails the test unless there is an error with all of the words in it.
func saysAll(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("there is no error, want one with %q", words)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not say %q:\n%v", word, err)
		}
	}
}
