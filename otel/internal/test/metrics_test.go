package otelreprise_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
	"github.com/reprise-go/reprise/core/headers"
	otelreprise "github.com/reprise-go/reprise/otel"
)

// TestCountsAddUp: what is counted of many messages is what the handlers did.
func TestCountsAddUp(t *testing.T) {
	messages := 10_000
	if testing.Short() {
		messages = 800
	}
	bubble(t, func(b *bed) {
		recover := core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 2}}
		var attempts, failures, sends atomic.Int64
		ep := b.orders(core.Config{Recoverability: recover, Transactions: core.TransactionReceiveOnly}, b.observer(otelreprise.Config{TracerProvider: tracenoop.NewTracerProvider()}), func(_ context.Context, m *core.Message) error {
			attempts.Add(1)
			n, err := strconv.Atoi(string(m.RawBody()))
			if err != nil {
				return err
			}
			needed := n % 8 // 0 and 1: the first attempt; 7: none of the 6 succeeds
			if m.DelayedRetries*2+m.Attempt < needed {
				if n%16 == 7 {
					return core.Discard(errors.New("not needed"))
				}
				failures.Add(1)
				return errUnreachable
			}
			sends.Add(1)
			return m.Send("shipping", shipType.Of("x"))
		})
		for i := range messages {
			out := core.Outgoing{
				ID: fmt.Sprint("m", i), Queue: "orders", Body: []byte(fmt.Sprint(i)),
				Headers: core.HeadersFromMap(map[string]string{headers.MessageID: fmt.Sprint("m", i), headers.MessageTypes: "order"}),
			}
			if err := b.transport.Send(b.Context(), out); err != nil {
				b.Fatal(err)
			}
			if i%50 == 0 {
				b.pass(time.Second) // so that at no time more than 1,000 events wait
			}
		}
		b.pass(time.Hour)
		equal(b, "events dropped", ep.Health().NotificationsDropped, int64(0))
		equal(b, "consumed", b.total("messaging.client.consumed.messages", ""), attempts.Load())
		equal(b, "processed", b.total("messaging.process.duration", ""), attempts.Load())
		equal(b, "failed", b.total("messaging.process.duration", "error.type=*errors.errorString"), failures.Load())
		equal(b, "actions", b.total("reprise.recoverability.actions", "error.type=*errors.errorString"), failures.Load())
		equal(b, "handlers' sends", b.total("messaging.client.sent.messages", "reprise.send.reason=application"), sends.Load())
		perClass := messages / 8
		equal(b, "moved to error", b.total("reprise.recoverability.actions", "reprise.action=error"), int64(perClass/2))
		equal(b, "discarded", b.total("reprise.recoverability.actions", "reprise.action=discard"), int64(perClass/2))
		equal(b, "immediate retries", b.total("reprise.recoverability.actions", "reprise.action=immediate_retry"), int64(perClass*(1+1+2+2+3)+perClass/2*3))
		equal(b, "delayed retries", b.total("reprise.recoverability.actions", "reprise.action=delayed_retry"), int64(perClass*(0+1+1+2+2)+perClass/2*2))
		equal(b, "failed age", b.total("reprise.failed.age", ""), int64(perClass/2))
		equal(b, "messages that succeeded", b.total("reprise.attempts", "reprise.outcome=succeeded"), int64(perClass*7))
		equal(b, "messages given up", b.total("reprise.attempts", "reprise.outcome=given_up"), int64(perClass))
		for _, p := range b.points("reprise.attempts") {
			want := float64(perClass * (1 + 1 + 2 + 3 + 4 + 5 + 6))
			if strings.Contains(p.attrs, "given_up") {
				want = float64(perClass/2*6 + perClass/2*1)
			}
			equal(b, "attempts of "+p.attrs, p.sum, want)
		}
	})
}

func TestCriticalTime(t *testing.T) {
	ago := func(d time.Duration) string { return headers.FormatTime(time.Now().Add(-d)) }
	for name, c := range map[string]struct {
		headers func() map[string]string
		want    float64
		count   int64
	}{
		"since it was sent": {func() map[string]string { return map[string]string{headers.TimeSent: ago(time.Minute)} }, 60, 1},
		"since it was due": {func() map[string]string {
			return map[string]string{headers.TimeSent: ago(time.Hour), headers.DeliverAt: ago(time.Second)}
		}, 1, 1},
		"from the future": {func() map[string]string { return map[string]string{headers.TimeSent: ago(-time.Hour)} }, 0, 1},
		"unknown":         {func() map[string]string { return nil }, 0, 0},
		"unreadable":      {func() map[string]string { return map[string]string{headers.TimeSent: "yesterday"} }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				b.orders(core.Config{}, b.observer(otelreprise.Config{}), func(context.Context, *core.Message) error { return nil })
				b.put(c.headers(), "m1")
				points := b.points("reprise.critical_time")
				if c.count == 0 {
					equal(b, "series", len(points), 0)
					return
				}
				equal(b, "series", len(points), 1)
				equal(b, "attributes", points[0].attrs, "reprise.endpoint=orders reprise.message.type=order")
				equal(b, "seconds", points[0].sum, c.want)
			})
		})
	}
}

func TestCriticalTime_NotOfFailures(t *testing.T) {
	bubble(t, func(b *bed) {
		b.orders(core.Config{Recoverability: none}, b.observer(otelreprise.Config{}), func(context.Context, *core.Message) error { return errUnreachable })
		b.send(b.client())
		equal(b, "series", len(b.points("reprise.critical_time")), 0)
	})
}

func TestFailedAge_SinceTheFirstFailure(t *testing.T) {
	bubble(t, func(b *bed) {
		b.orders(core.Config{Recoverability: delayed}, b.observer(otelreprise.Config{}), func(context.Context, *core.Message) error { return errUnreachable })
		b.send(b.client())
		b.pass(time.Hour)
		equal(b, "seconds", b.points("reprise.failed.age")[0].sum, 60)
	})
}

// TestCardinality: hostile types, destinations and instances make no more than a bounded number of series.
func TestCardinality(t *testing.T) {
	bubble(t, func(b *bed) {
		o := b.observer(otelreprise.Config{NServiceBusMetrics: true})
		start := func(queue, messageType string, err error) {
			m := newMessage(messageType, coretest.Options{ID: messageType + " id"})
			at := core.ObservedEndpoint{Endpoint: "orders", Instance: "pod-7f9c", Queue: queue}
			ctx := o.HandleStart(context.Background(), core.Handling{ObservedEndpoint: at, Message: m})
			o.HandleEnd(ctx, core.Handling{ObservedEndpoint: at, Message: m, Err: err, Duration: time.Millisecond})
			o.Recovered(ctx, core.Recovery{ObservedEndpoint: at, Failure: core.ErrorContext{Message: m, Err: err, FailedAt: time.Now()}})
			out := []core.Outgoing{{ID: messageType, Queue: "reply-" + messageType, Headers: core.HeadersFromMap(map[string]string{headers.MessageTypes: messageType})}}
			ctx = o.SendStart(context.Background(), core.Sending{ObservedEndpoint: at, Messages: out})
			o.SendEnd(ctx, core.Sending{ObservedEndpoint: at, Messages: out})
		}
		const hostile = 3000
		for i := range hostile {
			start("orders", fmt.Sprint("type ", i), fmt.Errorf("text %d: %w", i, errUnreachable))
		}
		for name, limit := range map[string]int{
			"messaging.client.consumed.messages": 201, "messaging.process.duration": 201, "messaging.client.sent.messages": 402,
			"reprise.recoverability.actions": 201, "nservicebus.messaging.fetches": 201,
		} {
			points := b.points(name)
			if len(points) > limit || b.total(name, "") != hostile {
				b.Errorf("%s has %d series of %d messages, want at most %d of %d", name, len(points), b.total(name, ""), limit, hostile)
			}
			for _, p := range points {
				if strings.Contains(p.attrs, "text ") || strings.Contains(p.attrs, "pod-7f9c") || strings.Contains(p.attrs, " id") {
					b.Fatalf("%s has a series %s", name, p.attrs)
				}
			}
		}
	})
}

func TestHealthGauges(t *testing.T) {
	bubble(t, func(b *bed) {
		release := make(chan struct{})
		ep := b.endpoint("orders", core.Config{Concurrency: 3, Instance: "one"}, b.observer(otelreprise.Config{}), func(context.Context, *core.Message) error { <-release; return nil }, "order")
		gauge := func(name string, want int64) {
			b.Helper()
			points := b.points("reprise.endpoint." + name)
			if len(points) != 1 || points[0].n != want || points[0].attrs != "reprise.endpoint=orders reprise.instance=one" {
				b.Errorf("%s is %v, want %d", name, points, want)
			}
		}
		equal(b, "series before Run", len(b.points("reprise.endpoint.up")), 0)
		stop := b.run(ep)
		b.put(nil, "m1", "m2")
		for name, want := range map[string]int64{"up": 1, "connected": 1, "starting": 0, "paused": 0, "sends_failing": 0, "rate_limited": 0, "in_flight": 2, "concurrency": 3, "undelivered": 0, "critical_errors": 0, "notifications_dropped": 0} {
			gauge(name, want)
		}
		ep.Pause()
		ep.RaiseCritical(errors.New("disk full"))
		synctest.Wait()
		gauge("paused", 1)
		gauge("critical_errors", 1)
		close(release)
		synctest.Wait()
		gauge("in_flight", 0)
		stop()
		gauge("up", 0)
		gauge("critical_errors", 1)
		for _, name := range []string{"starting", "connected", "paused", "sends_failing", "rate_limited", "in_flight", "concurrency", "undelivered"} {
			equal(b, name+" after Run", len(b.points("reprise.endpoint."+name)), 0)
		}
		b.run(ep)
		gauge("up", 1)
	})
}

// described is middleware that only has facts.
type described core.MiddlewareFacts

func (d described) Describe(core.MiddlewareScope) ([]core.MiddlewareFacts, error) {
	return []core.MiddlewareFacts{core.MiddlewareFacts(d)}, nil
}

func (described) Wrap(_ core.MiddlewareScope, next core.HandlerFunc) core.HandlerFunc { return next }

// circuit is middleware with the state of a circuit.
func circuit(name string, state func() string) core.Middleware {
	return described{Kind: "circuit breaker", Name: name, Refusals: []error{core.ErrCircuitOpen}, State: state}
}

// text is a state of package resilience.
type text string

func (t text) String() string { return string(t) }

func TestCircuits(t *testing.T) {
	bubble(t, func(b *bed) {
		state := "closed"
		o := b.observer(otelreprise.Config{})
		ep := b.endpoint("orders", core.Config{Instance: "one", Middleware: []core.Middleware{
			circuit("payments", func() string { return state }),
			circuit("mail", func() string { return "closed" }),
			described{Kind: "feature switch", Name: "refunds", State: func() string { return "off" }},
		}}, o, func(context.Context, *core.Message) error { return nil }, "order")
		stop := b.run(ep)
		open := func(want string) {
			b.Helper()
			var got []string
			for _, p := range b.points("reprise.circuit.open") {
				got = append(got, fmt.Sprint(p.attrs, "=", p.n))
			}
			slices.Sort(got)
			equal(b, state, strings.Join(got, ", "), want)
		}
		const mail, payments = "reprise.endpoint=orders reprise.instance=one reprise.policy=mail=0, ", "reprise.endpoint=orders reprise.instance=one reprise.policy=payments="
		open(mail + payments + "0")
		for _, state = range []string{"open", "half-open"} {
			open(mail + payments + "1")
		}
		stop()
		open("")
		for _, to := range []text{"open", "half-open", "open"} {
			o.CircuitChanged("payments", to)
		}
		equal(b, "changes", fmt.Sprint(b.total("reprise.circuit.changes", "reprise.circuit.state=open"), b.total("reprise.circuit.changes", "reprise.circuit.state=half_open reprise.policy=payments")), "2 1")
	})
}

// TestHealthGauges_States: an endpoint that receives nothing, or cannot send, looks like none that is well.
func TestHealthGauges_States(t *testing.T) {
	bubble(t, func(b *bed) {
		unreachable := &outage{Transport: b.broker}
		b.transport = unreachable
		unreachable.open.Store(true)
		o := b.observer(otelreprise.Config{})
		ep := b.endpoint("orders", core.Config{Recoverability: none, Transactions: core.TransactionReceiveOnly}, o, func(context.Context, *core.Message) error { return errUnreachable }, "order")
		sender := b.endpoint("shop", core.Config{SendOnly: true}, o, nil)
		gauges := func(when, endpoint, want string) {
			b.Helper()
			var got []string
			for _, name := range []string{"up", "starting", "connected", "sends_failing"} {
				for _, p := range b.points("reprise.endpoint." + name) {
					if strings.Contains(p.attrs, "reprise.endpoint="+endpoint+" ") {
						got = append(got, fmt.Sprint(name, "=", p.n))
					}
				}
			}
			equal(b, endpoint+" "+when, strings.Join(got, " "), want)
		}
		stop := b.run(ep)
		b.pass(time.Minute)
		gauges("while it waits for its broker", "orders", "up=0 starting=1 connected=0 sends_failing=0")
		unreachable.open.Store(false)
		b.pass(15 * time.Second)
		gauges("while it receives", "orders", "up=1 starting=0 connected=1 sends_failing=0")
		b.put(nil, "m1")
		gauges("while it handles", "orders", "up=1 starting=0 connected=1 sends_failing=0")
		gauges("before its first send", "shop", "")
		unreachable.send.Store(true)
		for _, each := range []*core.Endpoint{ep, sender} {
			if err := each.Send(b.Context(), "shipping", shipByteType.Of([]byte("x"))); !errors.Is(err, errUnreachable) {
				b.Fatal(err)
			}
		}
		synctest.Wait()
		gauges("while its sends fail", "orders", "up=1 starting=0 connected=1 sends_failing=1")
		gauges("while its sends fail", "shop", "connected=0 sends_failing=1")
		unreachable.send.Store(false)
		for _, each := range []*core.Endpoint{ep, sender} {
			if err := each.Send(b.Context(), "shipping", shipByteType.Of([]byte("x"))); err != nil {
				b.Fatal(err)
			}
		}
		synctest.Wait()
		gauges("after a send", "orders", "up=1 starting=0 connected=1 sends_failing=0")
		gauges("after a send", "shop", "connected=1 sends_failing=0")
		stop()
		gauges("after Run", "orders", "up=0")
	})
}

// outage is a transport whose broker is away.
type outage struct {
	core.Transport
	open, send atomic.Bool
}

func (o *outage) OpenReceiver(ctx context.Context, c core.ReceiverConfig) (core.Receiver, error) {
	if o.open.Load() {
		return nil, fmt.Errorf("dial: %w", core.ErrUnavailable)
	}
	return o.Transport.OpenReceiver(ctx, c)
}

func (o *outage) Send(ctx context.Context, out ...core.Outgoing) error {
	if o.send.Load() {
		return errUnreachable
	}
	return o.Transport.Send(ctx, out...)
}

// TestNServiceBusMeters: names, units and tags are those of NServiceBus's IncomingPipelineMetrics.
func TestNServiceBusMeters(t *testing.T) {
	bubble(t, func(b *bed) {
		recover := core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1}}
		b.orders(core.Config{Recoverability: recover}, b.observer(otelreprise.Config{NServiceBusMetrics: true}), func(_ context.Context, m *core.Message) error {
			if m.Headers.Get("good") == "" {
				return errUnreachable
			}
			return nil
		})
		b.put(map[string]string{"good": "yes", headers.TimeSent: headers.FormatTime(time.Now().Add(-time.Second))}, "m1")
		b.put(nil, "m2")
		b.pass(time.Minute)
		const common = "nservicebus.discriminator= "
		const attributes = "nservicebus.message_type=order nservicebus.queue=orders "
		const succeeded = "execution.result=success " + common + "nservicebus.message_handler_types= " + attributes + "1"
		handler := ""
		for _, a := range b.named("recover orders")[0].Attributes {
			if a.Key == "reprise.handler" {
				handler = a.Value.AsString()
			}
		}
		recovered := "error.type=*errors.errorString " + common + "nservicebus.message_handler_type=" + handler + " " + attributes
		metrics := b.collect()
		for name, want := range map[string]struct {
			unit   string
			points []string
		}{
			"nservicebus.messaging.fetches":         {"", []string{common + attributes + "5"}},
			"nservicebus.messaging.successes":       {"", []string{succeeded}},
			"nservicebus.messaging.critical_time":   {"s", []string{succeeded}},
			"nservicebus.messaging.processing_time": {"s", []string{succeeded}},
			"nservicebus.messaging.failures": {"", []string{
				"error.type=*errors.errorString execution.result=failure " + common + "nservicebus.message_handler_types= " + attributes + "4",
			}},
			"nservicebus.messaging.handler_time": {"s", []string{
				"error.type=*errors.errorString execution.result=failure " + common + "nservicebus.message_handler_type= " + attributes + "4",
				"execution.result=success " + common + "nservicebus.message_handler_type= " + attributes + "1",
			}},
			"nservicebus.recoverability.immediate": {"", []string{recovered + "2"}},
			"nservicebus.recoverability.delayed":   {"", []string{recovered + "1"}},
			"nservicebus.recoverability.error":     {"", []string{recovered + "1"}},
		} {
			m := metrics[name]
			equal(b, "unit of "+name, m.Unit, want.unit)
			var got []string
			for _, p := range pointsOf(m) {
				got = append(got, fmt.Sprint(p.attrs, " ", p.n))
			}
			equal(b, name, strings.Join(got, "\n"), strings.Join(want.points, "\n"))
			equal(b, "series of "+name+" without the option", len(otherMetrics(b)[name]), 0)
		}
	})
}

// otherMetrics are the metrics of an observer without the option.
func otherMetrics(b *bed) map[string][]point {
	o := &bed{T: b.T, reader: sdkmetric.NewManualReader()}
	o.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(o.reader))
	other := otelreprise.New(otelreprise.Config{MeterProvider: o.meters, TracerProvider: b.tracers})
	m := newMessage("order", coretest.Options{})
	ctx := other.HandleStart(context.Background(), core.Handling{Message: m})
	other.HandleEnd(ctx, core.Handling{Message: m})
	all := map[string][]point{}
	for name, m := range o.collect() {
		all[name] = pointsOf(m)
	}
	return all
}
