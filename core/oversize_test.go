package core_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// refusingAbove is a broker that takes no message of more bytes.
func refusingAbove(most int) func(out []core.Outgoing) error {
	return func(out []core.Outgoing) error {
		for _, o := range out {
			if size := len(o.Body) + o.Headers.Bytes(); size > most {
				return &core.SendError{Results: []core.SendResult{{ID: o.ID, To: o.Queue + o.Topic, State: core.SendRefused, Err: &core.TooLargeError{Limit: "max_message_size", Max: most, Size: size}}}}
			}
		}
		return nil
	}
}

// beyond is an order from a sender with other limits than the endpoint's transport has.
func beyond(id string, headers, body int) core.Outgoing {
	m := order(id)
	m.Headers.Set("Large", strings.Repeat("h", headers))
	m.Body = bytes.Repeat([]byte("b"), body)
	m.Reason = core.ReasonNewCopy // so that the transport of the test takes it too
	return m
}

// A message beyond the limits of the endpoint's transport goes every way that others go,
// whole, and with all that the engine adds.
func TestOversize_MessageBeyondLimitsIsMovedWhole(t *testing.T) {
	small := able(func(c *core.Capabilities) {
		c.MaxMessageBytes, c.MaxHeaderBytes, c.MaxHeaderKeyBytes = 4000, 2000, len(core.HeaderMessageTypes)
	})
	for name, size := range map[string][2]int{"body": {10, 8000}, "headers": {3000, 10}, "both": {3000, 8000}} {
		t.Run(name, func(t *testing.T) {
			inModesOn(t, small, retrying, func(b *bed) {
				b.must(b.broker.Provision(b.Context(), core.Topology{Queues: []string{"audit"}}))
				var attempts record[string]
				b.orders(core.Config{
					AuditQueue:     "audit",
					Recoverability: core.Recoverability{Immediate: core.Immediate{Retries: 1}, Delayed: core.Delayed{Retries: 1}, RequeueDelay: time.Second},
				}, func(_ context.Context, m *core.Message) error {
					attempts.add(m.ID)
					switch {
					case m.ID == "good" && m.Deferrals == 0:
						return core.Defer(time.Second)
					case m.ID == "good":
						return nil
					}
					return errBoom
				})
				bad, good := beyond("bad", size[0], size[1]), beyond("good", size[0], size[1])
				b.send(bad, good)
				b.pass(time.Hour)
				for queue, sent := range map[string]core.Outgoing{"error": bad, "audit": good} {
					got := b.only(queue)
					equal(b, "id in "+queue, got.ID, sent.ID)
					equal(b, "bytes in "+queue, len(got.Body), size[1])
					for key, value := range sent.Headers.All() {
						equal(b, key+" in "+queue, got.Headers.Get(key), value)
					}
				}
				failed := b.only("error").Headers
				for _, key := range []string{core.HeaderFailedQ, core.HeaderExceptionMessage, core.HeaderExceptionStackTrace, core.HeaderAttempts} {
					if failed.Get(key) == "" {
						b.Errorf("header %s is missing in the error queue", key)
					}
				}
				if b.only("audit").Headers.Get(core.HeaderProcessingEndpoint) == "" {
					b.Error("the headers of the audit copy are missing")
				}
				all := attempts.all()
				slices.Sort(all)
				equal(b, "attempts", fmt.Sprint(all), "[bad bad bad bad good good]")
				equal(b, "critical errors", len(b.logs.about("critical")), 0)
			})
		})
	}
}

// While the error queue is away, such a message is stored in the endpoint's own queue.
func TestOversize_MessageBeyondLimitsIsStored(t *testing.T) {
	inModesOn(t, able(func(c *core.Capabilities) { c.MaxMessageBytes, c.MaxHeaderBytes = 4000, 2000 }), retrying, func(b *bed) {
		b.broker.provoke(faults{send: func(out []core.Outgoing) error {
			for _, o := range out {
				if o.Queue == "error" {
					return errors.New("the error queue is away")
				}
			}
			return nil
		}})
		var runs atomic.Int64
		b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
			runs.Add(1)
			return errBoom
		})
		b.send(beyond("m1", 3000, 8000))
		time.Sleep(time.Minute)
		equal(b, "stored", b.depth("orders").Delayed, 1)
		b.broker.provoke(faults{})
		b.pass(time.Hour)
		got := b.only("error")
		equal(b, "body and header", fmt.Sprint(len(got.Body), len(got.Headers.Get("Large"))), "8000 3000")
		equal(b, "runs", runs.Load(), 1)
	})
}

// Applications are held against the limits, Forward included.
func TestOversize_LimitsAreForApplications(t *testing.T) {
	inModesOn(t, able(func(c *core.Capabilities) { c.MaxMessageBytes, c.MaxHeaderBytes = 4000, 2000 }), retrying, func(b *bed) {
		var refused record[error]
		b.orders(core.Config{Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			refused.add(m.Forward("shipping"))
			refused.add(m.Send("shipping", "ship", make([]byte, 8000)))
			return nil
		})
		b.send(beyond("m1", 10, 8000))
		b.pass(time.Minute)
		for i, err := range refused.all() {
			if !errors.Is(err, core.ErrTooLarge) {
				b.Errorf("send %d: %v, want ErrTooLarge", i, err)
			}
		}
		equal(b, "sends", len(refused.all()), 2)
		b.holds("shipping", 0)
	})
}

// Where the broker itself refuses the copy for the error queue, the engine leaves out the
// failure headers, then the sender's largest headers, as few as will do.
func TestOversize_BrokerRefusesLargeCopies(t *testing.T) {
	m := order("m1")
	m.Headers.Set("Largest", strings.Repeat("l", 3000))
	m.Headers.Set("Large", strings.Repeat("l", 2000))
	m.Headers.Set("Small", "kept")
	failedQ := len(core.HeaderFailedQ) + len("orders")
	needed := failedQ + len(core.HeaderMessageID) + len("m1") + len(core.HeaderMessageTypes) + len("order")
	whole := len(m.Body) + m.Headers.Bytes()
	for name, test := range map[string]struct {
		most    int
		missing []string
	}{
		"room for FailedQ":                  {whole + failedQ, nil},
		"no room for FailedQ":               {whole + failedQ - 1, nil},
		"one byte short":                    {whole - 1, []string{"Largest"}},
		"short by more than one header":     {whole - 3100, []string{"Largest", "Large"}},
		"a broker that tells no numbers":    {-1000, []string{"Largest"}},
		"only the needed headers find room": {len(m.Body) + needed, []string{"Largest", "Large", "Small", "Sender"}},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, everyMode, func(b *bed) {
				b.broker.provoke(faults{send: func(out []core.Outgoing) error {
					if test.most >= 0 {
						return refusingAbove(test.most)(out)
					}
					err := refusingAbove(whole + test.most)(out)
					if refused, ok := errors.AsType[*core.SendError](err); ok {
						refused.Results[0].Err = core.ErrTooLarge
					}
					return err
				}})
				b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
				m.Reason = core.ReasonNewCopy
				b.must(b.broker.Transport.Send(b.Context(), m))
				b.pass(time.Minute)
				got := b.only("error")
				equal(b, "body", string(got.Body), string(m.Body))
				for _, key := range []string{"Largest", "Large", "Small", "Sender"} {
					_, there := got.Headers.Lookup(key)
					missing := strings.Contains(" "+strings.Join(test.missing, " ")+" ", " "+key+" ")
					equal(b, key+" is missing", !there, missing)
				}
				equal(b, "lines", len(b.logs.about("without headers of its sender")), min(len(test.missing), 1))
				equal(b, "critical errors", len(b.logs.about("critical")), 0)
			})
		})
	}
}

// A message that the broker refuses in every form is kept, unsettled and without a slot:
// its handler does not run again, it is not given back, the tries become rarer, and
// each critical error names the limit. It is moved when the limit has been raised.
func TestOversize_MessageThatTheBrokerRefusesIsKept(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		b.broker.provoke(faults{send: refusingAbove(500)})
		var runs record[string]
		ep, running := b.orders(core.Config{Concurrency: 1, Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			if runs.add(m.ID); m.ID == "large" {
				return errBoom
			}
			return nil
		})
		b.must(b.broker.Transport.Send(b.Context(), beyond("large", 10, 8000)))
		b.pass(2 * time.Hour)
		b.put("small")
		equal(b, "runs", fmt.Sprint(runs.all()), "[large small]")
		equal(b, "given back", b.broker.settledAs("Release", "large")+b.broker.settledAs("Abandon", "large"), 0)
		b.holds("error", 0)
		health := ep.Health()
		equal(b, "undelivered", health.Undelivered, 1)
		if text := fmt.Sprint(health.LastCritical); !containsAll(text, "large", "max_message_size is 500") {
			b.Errorf("the critical error is %q", text)
		}
		if n := len(b.logs.about("critical")); n < 20 || n > 40 {
			b.Errorf("%d critical errors in two hours, want one every 5 minutes", n)
		}
		b.broker.provoke(faults{})
		b.pass(10 * time.Minute)
		equal(b, "bytes in the error queue", len(b.only("error").Body), 8000)
		equal(b, "undelivered", ep.Health().Undelivered, 0)
		equal(b, "runs", fmt.Sprint(runs.all()), "[large small]")
		b.must(running.stop())
	})
}
