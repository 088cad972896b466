package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	testserver "github.com/reprise-go/reprise/internal/testserver/rabbitmq"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// patience is how long tests wait for an event that must happen.
const patience = 5 * time.Minute

// numbered returns messages to a queue whose bodies are the numbers from first on.
func numbered(queue string, first, n int) []core.Outgoing {
	messages := make([]core.Outgoing, n)
	for i := range messages {
		text := strconv.Itoa(first + i)
		messages[i] = core.Outgoing{ID: text, Queue: queue, Body: []byte(text)}
	}
	return messages
}

// mustSend sends messages, all of which must be accepted.
func mustSend(t testing.TB, transport core.Transport, messages ...core.Outgoing) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := transport.Send(ctx, messages...); err != nil {
		t.Fatal(err)
	}
}

// states counts the outcomes of the messages of a Send, by its error.
func states(t testing.TB, sent int, err error) map[core.SendState]int {
	t.Helper()
	if err == nil {
		return map[core.SendState]int{core.SendAccepted: sent}
	}
	failed, ok := errors.AsType[*core.SendError](err)
	if !ok {
		t.Fatalf("Send = %v, which is no SendError", err)
	}
	counts := map[core.SendState]int{}
	for _, r := range failed.Results {
		counts[r.State]++
	}
	return counts
}

// consume opens a receiver that the test closes at its end at the latest.
func consume(t testing.TB, transport core.Transport, cfg core.ReceiverConfig) core.Receiver {
	t.Helper()
	if cfg.Mode == core.TransactionDefault {
		cfg.Mode = core.TransactionReceiveOnly
	}
	if cfg.MaxInFlight == 0 {
		cfg.MaxInFlight = 100
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := transport.OpenReceiver(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}

// next returns some deliveries.
func next(t testing.TB, r core.Receiver, limit int) []core.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	deliveries := make([]core.Delivery, limit)
	n, err := r.Receive(ctx, deliveries)
	if err != nil {
		t.Fatal(err)
	}
	return deliveries[:n]
}

// drain completes what comes until each of the bodies has come, and returns how often
// each did. What was sent again after an outage comes more than once.
func drain(t testing.TB, r core.Receiver, bodies int) map[string]int {
	t.Helper()
	came := map[string]int{}
	for len(came) < bodies {
		for _, d := range next(t, r, 100) {
			came[string(d.Incoming().Body)]++
			if err := d.Complete(t.Context()); err != nil && !errors.Is(err, core.ErrLockLost) {
				t.Fatal(err)
			}
		}
	}
	return came
}

// depth is how many messages of a queue are ready, and how many consumers hold, as of now:
// the figures of list_queues for a quorum queue are up to 5 s old.
func (s *site) depth(t testing.TB, queue string) (ready, unacked int) {
	t.Helper()
	text, err := s.Eval(t.Context(), fmt.Sprintf(`
		{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"%s">>, queue, <<"%s">>)),
		Of = fun(Count) -> {ok, N, _} = ra:consistent_query(amqqueue:get_pid(Q), Count), N end,
		case amqqueue:get_type(Q) of
			rabbit_quorum_queue -> {Of(fun rabbit_fifo:query_messages_ready/1), Of(fun rabbit_fifo:query_messages_checked_out/1)};
			_ -> list_to_tuple([N || {_, N} <- rabbit_amqqueue:info(Q, [messages_ready, messages_unacknowledged])])
		end.`, s.vhost, queue))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(text, "{%d,%d}", &ready, &unacked); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return ready, unacked
}

// ready returns the number of messages of a queue that no consumer holds, as a passive
// declaration tells it. That is 0 too where a quorum queue does not answer within 250 ms
// (rabbit_quorum_queue:stat).
func (s *site) ready(t testing.TB, ch *amqp.Channel, queue string) int {
	t.Helper()
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return q.Messages
}

// take empties a queue, past the transport, and returns how often each body was in it.
func (s *site) take(t testing.TB, queue string) map[string]int {
	t.Helper()
	ch, bodies := s.channel(t), map[string]int{}
	for {
		m, ok, err := ch.Get(queue, true)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return bodies
		}
		bodies[string(m.Body)]++
	}
}

// awaits takes n messages from a queue, when they come.
func (s *site) awaits(t testing.TB, queue string, n int) (messages []amqp.Delivery) {
	t.Helper()
	ch := s.channel(t)
	awaitTrue(t, fmt.Sprintf("%d messages are in %s", n, queue), func() bool {
		m, ok, err := ch.Get(queue, true)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			messages = append(messages, m)
		}
		return len(messages) == n
	})
	return messages
}

// watch records the notifications of an observer of connections.
type watch struct {
	mu      sync.Mutex
	changes []core.ConnectionChange
}

// ConnectionChanged is that of a core.ReceiverConfig.
func (w *watch) ConnectionChanged(change core.ConnectionChange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes = append(w.changes, change)
}

func (w *watch) all() []core.ConnectionChange {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]core.ConnectionChange(nil), w.changes...)
}

// connected reports what was said last, true before anything was.
func (w *watch) connected() bool {
	all := w.all()
	return len(all) == 0 || all[len(all)-1].Connected
}

// said reports whether an outage was explained with all of these words.
func (w *watch) said(words ...string) bool {
	for _, change := range w.all() {
		all := change.Err != nil
		for _, word := range words {
			all = all && strings.Contains(change.Err.Error(), word)
		}
		if all {
			return true
		}
	}
	return false
}

// awaitTrue waits until something is so.
func awaitTrue(t testing.TB, subject string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("this did not happen: %s", subject)
		}
	}
}

// through is a virtual host of a test's own on the shared server, with a proxy before it.
func through(t *testing.T) (*broker, *site) {
	b := brokerOn(t, rabbitmq.SharedServer(t, testserver.V4))
	return b, &site{Server: b.server, vhost: b.vhost}
}

// unheard has a transport take no connection for lost because nothing is heard of it: the
// test ends connections itself.
func unheard(cfg rabbitmq.Config) rabbitmq.Config {
	cfg.URLs = beating(time.Hour, cfg.URLs...)
	return cfg
}

// beating returns URLs with an interval of heartbeats.
func beating(interval time.Duration, urls ...string) []string {
	all := make([]string, len(urls))
	for i, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			panic(err) // the tests made it
		}
		options := u.Query()
		options.Set("heartbeat", strconv.Itoa(int(interval/time.Second)))
		u.RawQuery = options.Encode()
		all[i] = u.String()
	}
	return all
}

// proxied returns a transport that goes through the proxy, and has provisioned queues.
func (b *broker) proxied(t *testing.T, queues ...string) *rabbitmq.Transport {
	t.Helper()
	s := &site{Server: b.server, vhost: b.vhost}
	return s.provisioned(t, unheard(rabbitmq.Config{URLs: []string{b.url}}), queues...)
}

// awaitSend sends messages again until all are accepted, through an outage.
func awaitSend(t testing.TB, transport core.Transport, messages ...core.Outgoing) {
	t.Helper()
	var err error
	awaitTrue(t, "all messages are accepted", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err = transport.Send(ctx, messages...); err == nil {
			return true
		}
		failed, ok := errors.AsType[*core.SendError](err)
		if !ok {
			t.Fatal(err)
		}
		var unsent []core.Outgoing
		for i, result := range failed.Results {
			if result.State != core.SendAccepted {
				unsent = append(unsent, messages[i])
			}
		}
		messages = unsent
		return false
	})
}
