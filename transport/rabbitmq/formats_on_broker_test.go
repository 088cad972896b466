package rabbitmq

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/rabbitmq"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/delays"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/message"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/names"
)

// Both releases meet the assumptions of this package about a broker.
func TestFormat_OnABroker(t *testing.T) {
	t.Parallel()
	for _, release := range Releases() {
		t.Run(release.String(), func(t *testing.T) {
			t.Parallel()
			server := SharedServer(t, release)
			for name, test := range map[string]func(*testing.T, *rabbitmq.Server){
				"delays are declared concurrently":          manyDeclareDelays,
				"a level that differs is named":             delaysDiffer,
				"a delayed message reaches its queue alone": travelsByBroker,
				"TLS follows the options of the URL":        urlOptionsOfTLS,
				"odd names and headers arrive as sent":      awkwardArrives,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, server)
				})
			}
		})
	}
}

func dial(t *testing.T, server *rabbitmq.Server, vhost string) *amqp.Connection {
	t.Helper()
	c := Config{URLs: []string{server.PasswordURL(vhost)}}
	endpoints, err := c.complete()
	if err != nil {
		t.Fatal(err)
	}
	h := endpoints[0]
	conn, err := amqp.DialConfig("amqp://"+h.addr, amqp.Config{SASL: h.sasl(), Vhost: h.uri.Vhost, Heartbeat: h.heartbeat})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func channel(t *testing.T, conn *amqp.Connection) *amqp.Channel {
	t.Helper()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func manyDeclareDelays(t *testing.T, server *rabbitmq.Server) {
	conn := dial(t, server, server.NewVHost(t))
	var all sync.WaitGroup
	for range 4 {
		ch := channel(t, conn)
		all.Go(func() {
			for range 2 {
				if err := delays.Declare(ch); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func delaysDiffer(t *testing.T, server *rabbitmq.Server) {
	for name, declare := range map[string]func(*amqp.Channel) error{
		`exchange "nsb.v2.delay-level-03"`: func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare(delays.Level(3), amqp.ExchangeFanout, true, false, false, false, nil)
		},
		`queue "nsb.v2.delay-level-03"`: func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(delays.Level(3), true, false, false, false, nil)
			return err
		},
	} {
		conn := dial(t, server, server.NewVHost(t))
		if err := declare(channel(t, conn)); err != nil {
			t.Fatal(err)
		}
		err := delays.Declare(channel(t, conn))
		if mismatch, ok := errors.AsType[*amqp.Error](err); !ok || mismatch.Code != amqp.PreconditionFailed || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// travelsByBroker sends the largest message that there may be with a delay of three levels,
// to the longest name of a queue.
func travelsByBroker(t *testing.T, server *rabbitmq.Server) {
	conn := dial(t, server, server.NewVHost(t))
	ch := channel(t, conn)
	if err := delays.Declare(ch); err != nil {
		t.Fatal(err)
	}
	to := "sales." + strings.Repeat("q", names.MaxQueue-len("sales."))
	queues := map[string]<-chan amqp.Delivery{}
	for _, queue := range []string{to, strings.TrimPrefix(to, "sales."), "sales", "1.1.1." + to[:20]} {
		if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": Quorum.argument()}); err != nil {
			t.Fatal(err)
		}
		if err := ch.QueueBind(queue, delays.BindingKey(queue), delays.DeliveryExchange, false, nil); err != nil {
			t.Fatal(err)
		}
		arrived, err := ch.Consume(queue, "", true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		queues[queue] = arrived
	}
	f := message.NewFormat(message.Config{})
	f.SetFrameMax(conn.Config.FrameSize)
	const delay = 6*time.Second + 1
	out := core.Outgoing{ID: "m1", Queue: to, Delay: delay, Headers: manyHeaders(5000)}
	exchange, key, _ := delays.Route(out.Delay, out.Queue)
	for size := 1; ; size++ { // as many bytes more as there can be
		with := out
		with.Headers.Set("last", strings.Repeat("x", size*100))
		p, err := f.Publishing(&with, "c1")
		if err != nil {
			break
		}
		f.Recycle(p.Headers)
		out = with
	}
	p, err := f.Publishing(&out, "c1")
	if err != nil {
		t.Fatal(err)
	}
	sent := time.Now()
	if err := ch.PublishWithContext(t.Context(), exchange, key, false, false, p); err != nil {
		t.Fatal(err)
	}
	var in core.Incoming
	select {
	case d, open := <-queues[to]:
		if !open {
			t.Fatal("it closes the connection")
		}
		if after := time.Since(sent); after < delay {
			t.Errorf("it arrived after %v, too early", after)
		}
		f.Incoming(&d, to, &in)
	case <-t.Context().Done():
		t.Fatal("it does not arrive")
	}
	if in.Malformed != nil || !maps.Equal(in.Headers.Map(), out.Headers.Map()) || in.NativeID != "c1@"+to {
		t.Errorf("it has %d headers, not %d, NativeID %q, %v", in.Headers.Len(), out.Headers.Len(), in.NativeID, in.Malformed)
	}
	delete(queues, to)
	for queue, arrived := range queues {
		select {
		case <-arrived:
			t.Errorf("it came to %q too", queue)
		default:
		}
	}
}

// manyHeaders returns n headers without values.
func manyHeaders(n int) core.Headers {
	m := make(map[string]string, n)
	for i := range n {
		m[fmt.Sprintf("Header.%05d", i)] = ""
	}
	return core.HeadersFromMap(m)
}

func urlOptionsOfTLS(t *testing.T, server *rabbitmq.Server) {
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, server.CA(), 0o600); err != nil {
		t.Fatal(err)
	}
	for options, trusted := range map[string]bool{
		"":                  false,
		"?cacertfile=" + ca: true,
		"?server_name_indication=another.example&cacertfile=" + ca: false,
	} {
		c := Config{URLs: []string{server.TLSURL("/") + options}}
		endpoints, err := c.complete()
		if err != nil {
			t.Fatal(err)
		}
		conn, err := tls.Dial("tcp", endpoints[0].addr, endpoints[0].tls)
		if trusted != (err == nil) {
			t.Errorf("with the options %q: %v", options, err)
		}
		if err == nil {
			conn.Close()
		}
	}
}

func awkwardArrives(t *testing.T, server *rabbitmq.Server) {
	f := message.NewFormat(message.Config{})
	for _, kind := range []QueueType{Quorum, Classic} {
		ch := channel(t, dial(t, server, server.NewVHost(t)))
		if err := ch.Confirm(false); err != nil {
			t.Fatal(err)
		}
		for _, queue := range []string{"Örder ✓", "a..b.", "0.1.x", "x@y", " ", strings.Repeat("q", names.MaxQueue)} {
			if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": kind.argument()}); err != nil {
				t.Fatalf("%q: %v", queue, err)
			}
			out := core.Outgoing{
				ID: "m1", Queue: queue, TimeToBeReceived: message.MaxExpiration, Properties: map[string]string{"rabbitmq.priority": "255"},
				Headers: core.HeadersFromMap(map[string]string{
					"CC": "a", "BCC": "b", "x-death": "c", "x-delivery-count": "9", "x-received-from": "d", "x-stream-offset": "e", "x-delay": "1", "\x00": "\x00", "Örder ✓": "\uFFFE", "empty": "", "Reprise.CopyID": "g",
				}),
			}
			p, err := f.Publishing(&out, "c1")
			if err != nil {
				t.Fatal(err)
			}
			confirmed, err := ch.PublishWithDeferredConfirm("", queue, true, false, p)
			if err != nil {
				t.Fatal(err)
			}
			if taken, err := confirmed.WaitContext(t.Context()); err != nil || !taken {
				t.Fatalf("%q: %v, %v", queue, taken, err)
			}
			for count := 1; count <= 3; count++ {
				d := get(t, ch, queue)
				if err := d.Reject(true); err != nil {
					t.Fatal(err)
				}
				var in core.Incoming
				f.Incoming(&d, queue, &in)
				if in.Malformed != nil || !maps.Equal(in.Headers.Map(), out.Headers.Map()) || in.NativeID != "c1@"+queue || in.ID != "m1" {
					t.Errorf("%q arrives with %q, %q, %q, %v", queue, in.ID, in.NativeID, in.Headers.Map(), in.Malformed)
				}
				if got := message.DeliveryCount(&d); kind == Quorum && got != count || in.Redelivered != (count > 1) {
					t.Errorf("%q: delivery %d has the count %d, redelivered %v", queue, count, got, in.Redelivered)
				}
			}
		}
	}
}

// get waits for a message, which is given back a moment after it was rejected.
func get(t *testing.T, ch *amqp.Channel, queue string) amqp.Delivery {
	t.Helper()
	for t.Context().Err() == nil {
		d, ok, err := ch.Get(queue, false)
		if err != nil {
			t.Fatalf("%q: %v", queue, err)
		}
		if ok {
			return d
		}
	}
	return amqp.Delivery{}
}
