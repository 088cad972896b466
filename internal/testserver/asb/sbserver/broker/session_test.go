package broker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
)

func withSessions(t *testing.T) *namespace {
	t.Helper()
	return withQueue(t, properties.Queue{RequiresSession: true, MaxDeliveryCount: 3})
}

func (n *namespace) accept(id string) *broker.Consumer {
	n.t.Helper()
	c, err := n.Consume(n.t.Context(), "q", broker.ConsumerConfig{AcceptSession: true, Session: &id})
	n.must(err)
	return c
}

// acceptNext accepts the next session, or returns the error if there is none.
func (n *namespace) acceptNext() (*broker.Consumer, error) {
	ctx, cancel := context.WithCancel(n.t.Context())
	cancel()
	return n.Consume(ctx, "q", broker.ConsumerConfig{AcceptSession: true})
}

func TestSession_MessagesInOrderOfOneSession(t *testing.T) {
	n := withSessions(t)
	for i := range 6 {
		n.send("q", fmt.Sprint(i), inSession(fmt.Sprint("s", i%2)))
	}
	c := n.accept("s1")
	equal(t, "the session", c.SessionID(), "s1")
	equal(t, "the messages of s1", bodies(c.Next(10)), "[1 3 5]")
	other, err := n.acceptNext()
	n.must(err)
	equal(t, "the next session", other.SessionID(), "s0")
	got := other.Next(2)
	equal(t, "the messages of s0", bodies(got), "[0 2]")
	n.settle("q", got[0], broker.Abandon)
	equal(t, "the messages after abandoning", bodies(other.Next(10)), "[0 4]")
	_, err = n.acceptNext()
	n.refuses(err, condition.Timeout)
}

func TestSession_OneReceiver(t *testing.T) {
	n := withSessions(t)
	id := "s"
	first := n.accept(id)
	_, err := n.Consume(t.Context(), "q", broker.ConsumerConfig{AcceptSession: true, Session: &id})
	n.refuses(err, condition.SessionCannotLock)
	n.must(first.Close())
	n.accept(id)
}

// A receiver that closes gives the messages back in order, and their delivery count stays.
func TestSession_CloseReleasesMessages(t *testing.T) {
	n := withSessions(t)
	for i := range 3 {
		n.send("q", fmt.Sprint(i), inSession("s"))
	}
	for range 5 {
		c := n.accept("s")
		got := c.Next(2)
		equal(t, "the messages", bodies(got), "[0 1]")
		equal(t, "the delivery count", got[0].DeliveryCount, 0)
		n.must(c.Close())
		n.refuses(n.Settle("q", got[0].LockToken, broker.Settlement{Outcome: broker.Complete}), condition.SessionLockLost)
	}
}

// A session that its receiver closes is offered to the next one, with or without locked messages.
func TestSession_CloseOffersTheSession(t *testing.T) {
	n := withSessions(t)
	n.send("q", "a", inSession("s"))
	n.send("q", "b", inSession("s"))
	n.must(n.accept("s").Close())
	c, err := n.acceptNext()
	n.must(err)
	n.settle("q", n.next(c), broker.Complete)
	n.must(c.Close())
	c, err = n.acceptNext()
	n.must(err)
	equal(t, "the messages", bodies(c.Next(5)), "[b]")
	n.must(c.Close())
	n.settle("q", n.next(n.accept("s")), broker.Complete)
	_, err = n.acceptNext()
	n.refuses(err, condition.Timeout)
}

// A session whose lock ends raises the delivery count of the messages that its receiver had.
func TestSession_LockEnds(t *testing.T) {
	n := withSessions(t)
	for i := range 3 {
		n.send("q", fmt.Sprint(i), inSession("s"))
	}
	var ended *condition.Error
	id := "s"
	c, err := n.Consume(t.Context(), "q", broker.ConsumerConfig{AcceptSession: true, Session: &id, Ended: func(e *condition.Error) { ended = e }})
	n.must(err)
	got := c.Next(2)
	equal(t, "the end of the lock", c.SessionLockedUntil(), start.Add(time.Minute))
	equal(t, "the end of the message's lock", got[0].LockedUntil, time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC))
	n.clock.Advance(time.Minute)
	if ended == nil || ended.Condition != condition.SessionLockLost {
		t.Errorf("the consumer ended with %v", ended)
	}
	equal(t, "the end of the lock afterwards", c.SessionLockedUntil().IsZero(), true)
	n.refuses(n.Settle("q", got[0].LockToken, broker.Settlement{Outcome: broker.Complete}), condition.SessionLockLost)
	equal(t, "the messages for a consumer without the lock", len(c.Next(1)), 0)
	got = n.accept("s").Next(3)
	equal(t, "the messages", bodies(got), "[0 1 2]")
	for i, want := range []uint32{1, 1, 0} {
		equal(t, "the delivery count", got[i].DeliveryCount, want)
	}
}

func TestSession_MaxDeliveryCount(t *testing.T) {
	n := withSessions(t)
	n.send("q", "a", inSession("s"))
	n.send("q", "b", inSession("s"))
	c := n.accept("s")
	for range 3 {
		got := n.next(c)
		equal(t, "the body", body(got), "a")
		n.settle("q", got, broker.Abandon)
	}
	equal(t, "the body", body(n.next(c)), "b")
	dead := n.receive("q/$DeadLetterQueue") // which has no sessions
	equal(t, "the body", body(dead), "a")
	equal(t, "the session", *dead.SessionID, "s")
}

func TestSession_Renew(t *testing.T) {
	n := withSessions(t)
	n.send("q", "a", inSession("s"))
	c := n.accept("s")
	d := n.next(c)
	n.clock.Advance(50 * time.Second)
	lockedUntil, err := n.RenewSession("q", "s")
	n.must(err)
	equal(t, "the end of the lock", lockedUntil, start.Add(110*time.Second))
	_, err = n.Renew("q", d.LockToken)
	n.refuses(err, condition.NotAllowed)
	n.clock.Advance(50 * time.Second)
	n.settle("q", d, broker.Complete)
	n.clock.Advance(10 * time.Second)
	_, err = n.RenewSession("q", "s")
	n.refuses(err, condition.SessionLockLost)
}

func TestSession_State(t *testing.T) {
	n := withSessions(t)
	_, err := n.SessionState("q", "s")
	n.refuses(err, condition.SessionLockLost)
	c := n.accept("s")
	state, err := n.SessionState("q", "s")
	n.must(err)
	equal(t, "the state at first", state == nil, true)
	n.must(n.SetSessionState("q", "s", []byte("x")))
	n.must(c.Close())
	n.clock.Advance(24 * time.Hour)
	n.accept("s")
	state, err = n.SessionState("q", "s")
	n.must(err)
	equal(t, "the state", string(state), "x")
	n.must(n.SetSessionState("q", "s", nil))
	state, err = n.SessionState("q", "s")
	n.must(err)
	equal(t, "the state at the end", state == nil, true)
	n.refuses(n.SetSessionState("q", "s", make([]byte, 256<<10+1)), condition.MessageSize)
}

func TestSession_MessagesNeedAnID(t *testing.T) {
	n := withSessions(t)
	n.refuses(n.Send("q", newMessage("a")), condition.NotAllowed)
	n.send("q", "b", inSession(""))
	equal(t, "the body", body(n.next(n.accept(""))), "b")
}

func TestSession_ReceiversMustFit(t *testing.T) {
	n := withSessions(t)
	n.queue("plain", properties.Queue{})
	_, err := n.Consume(t.Context(), "q", broker.ConsumerConfig{})
	n.refuses(err, condition.NotAllowed)
	_, err = n.Consume(t.Context(), "plain", broker.ConsumerConfig{AcceptSession: true})
	n.refuses(err, condition.NotAllowed)
}

// A scheduled message joins its session at its time.
func TestSession_ScheduledMessage(t *testing.T) {
	n := withSessions(t)
	n.send("q", "scheduled", inSession("s"), scheduledAt(start.Add(time.Second)))
	n.send("q", "first", inSession("s"))
	_, err := n.Schedule("q", newMessage("other", inSession("t"), scheduledAt(start.Add(time.Second))))
	n.must(err)
	c := n.accept("s")
	equal(t, "the messages before", bodies(c.Next(5)), "[first]")
	_, err = n.acceptNext()
	n.refuses(err, condition.Timeout)
	n.clock.Advance(time.Second)
	equal(t, "the messages after", bodies(c.Next(5)), "[scheduled]")
	next, err := n.acceptNext()
	n.must(err)
	equal(t, "the next session", next.SessionID(), "t")
}

func TestSession_DeferredMessage(t *testing.T) {
	n := withSessions(t)
	n.send("q", "a", inSession("s"))
	c := n.accept("s")
	n.settle("q", n.next(c), broker.Defer)
	id, other := "s", "t"
	_, err := n.ReceiveDeferred("q", broker.PeekLock, nil, 1)
	n.refuses(err, condition.NotAllowed)
	n.accept("t")
	_, err = n.ReceiveDeferred("q", broker.PeekLock, &other, 1)
	n.refuses(err, condition.MessageNotFound)
	got, err := n.ReceiveDeferred("q", broker.PeekLock, &id, 1)
	n.must(err)
	n.must(c.Close())
	_, err = n.ReceiveDeferred("q", broker.PeekLock, &id, 1)
	n.refuses(err, condition.SessionLockLost)
	n.accept("s")
	got, err = n.ReceiveDeferred("q", broker.PeekLock, &id, got[0].SequenceNumber)
	n.must(err)
	n.settle("q", got[0], broker.Complete)
}

func TestSession_Peek(t *testing.T) {
	n := withSessions(t)
	for i := range 4 {
		n.send("q", fmt.Sprint(i), inSession(fmt.Sprint("s", i%2)))
	}
	id := "s1"
	messages, err := n.Peek("q", 0, 10, &id)
	n.must(err)
	equal(t, "the number of messages", len(messages), 2)
	equal(t, "the first one", string(messages[0].Body()), "1")
	messages, err = n.Peek("q", 0, 10, nil)
	n.must(err)
	equal(t, "the number of all messages", len(messages), 4)
}

func TestSessions_List(t *testing.T) {
	n := withSessions(t)
	for _, id := range []string{"c", "a", "b"} {
		n.send("q", "x", inSession(id))
	}
	c := n.accept("state")
	n.must(n.SetSessionState("q", "state", []byte("x")))
	n.must(c.Close())
	n.must(n.accept("nothing").Close())
	farFuture := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	tests := []struct {
		after       time.Time
		skip, limit int
		want        string
	}{
		{farFuture, 0, 100, "[a b c state]"},
		{farFuture, 1, 2, "[b c]"},
		{farFuture, 10, 2, "[]"},
		{start.Add(-time.Second), 0, 100, "[state]"},
		{start, 0, 100, "[]"},
	}
	for _, test := range tests {
		ids, err := n.Sessions("q", test.after, test.skip, test.limit)
		n.must(err)
		equal(t, "the sessions", fmt.Sprint(ids), test.want)
	}
}

// Receivers that wait for a session get one as soon as there is one, in the order in which they came.
func TestSession_WaitForNext(t *testing.T) {
	n := withSessions(t)
	accepted := make(chan *broker.Consumer)
	go func() {
		c, err := n.Consume(t.Context(), "q", broker.ConsumerConfig{AcceptSession: true})
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	// The consumer may wait already or not yet.
	n.send("q", "a", inSession("s"))
	c := <-accepted
	equal(t, "the session", c.SessionID(), "s")
	equal(t, "the messages", bodies(c.Next(5)), "[a]")
}

func TestSession_WakesItsHolder(t *testing.T) {
	n := withSessions(t)
	ready := make(chan struct{}, 10)
	id := "s"
	c, err := n.Consume(t.Context(), "q", broker.ConsumerConfig{AcceptSession: true, Session: &id, Ready: func() { ready <- struct{}{} }})
	n.must(err)
	n.send("q", "other", inSession("t"))
	equal(t, "the wake-ups by another session", len(ready), 0)
	n.send("q", "a", inSession("s"))
	<-ready
	equal(t, "the messages", bodies(c.Next(5)), "[a]")
	n.send("q", "b", inSession("s"))
	<-ready
	equal(t, "the messages", bodies(c.Next(5)), "[b]")
}

func TestAutoCreate_BecomesASessionQueue(t *testing.T) {
	n := newNamespace(t, broker.Config{AutoCreate: true})
	n.send("q", "a", inSession("s"))
	n.send("q", "b")
	c := n.accept("s")
	equal(t, "the messages", bodies(c.Next(5)), "[a]")
	equal(t, "the messages without a session", bodies(n.accept("").Next(5)), "[b]")
	_, err := n.Consume(t.Context(), "q", broker.ConsumerConfig{})
	n.refuses(err, condition.NotAllowed)

	n.consume("plain")
	_, err = n.Consume(t.Context(), "plain", broker.ConsumerConfig{AcceptSession: true})
	n.refuses(err, condition.NotAllowed)
}
