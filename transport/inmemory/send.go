package inmemory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
)

// Send stores a copy of each message. Everything that can be wrong with a
// message itself is checked first, and then nothing is sent at all; a
// destination that does not exist concerns only its own message.
//
// Time to be received counts from the Send, also for a delayed message.
// GroupKey and Properties have no use here and are not kept.
func (t *Transport) Send(ctx context.Context, msgs ...core.Outgoing) error {
	err := t.usable(ctx)
	bad := -1
	for i := 0; i < len(msgs) && err == nil; i++ {
		err, bad = t.check(&msgs[i]), i
	}
	if err != nil {
		return fmt.Errorf("inmemory: send: %w", refuseAll(msgs, bad, err))
	}
	now := time.Now()
	var failed *core.SendError
	for i := range msgs {
		var one [1]*queue
		queues, err := t.broker.destinations(&msgs[i], &one)
		if err != nil {
			if failed == nil {
				failed = accepted(msgs)
			}
			failed.Results[i].State = core.SendRefused
			failed.Results[i].Err = err
			continue
		}
		t.broker.deliver(&msgs[i], queues, now)
	}
	if failed != nil {
		return fmt.Errorf("inmemory: send: %w", failed)
	}
	return nil
}

// deliver stores one copy in each queue. The copies share one body, because
// nobody writes it.
func (b *Broker) deliver(out *core.Outgoing, queues []*queue, now time.Time) {
	if len(queues) == 0 {
		return
	}
	body := bytes.Clone(out.Body)
	for _, q := range queues {
		q.send(b.newMessage(out, body, now), now)
	}
}

// check returns what is wrong with the message, whatever its destination.
func (t *Transport) check(out *core.Outgoing) error {
	switch {
	case out.Queue == "" && out.Topic == "":
		return errors.New("neither Queue nor Topic is set")
	case out.Queue != "" && out.Topic != "":
		return fmt.Errorf("both Queue %q and Topic %q are set", out.Queue, out.Topic)
	case out.Topic != "" && !t.caps.PublishSubscribe:
		return unsupported("PublishSubscribe")
	case out.Delay < 0:
		return fmt.Errorf("Delay is negative: %v", out.Delay)
	case out.Delay > 0 && !t.caps.DelayedDelivery:
		return unsupported("DelayedDelivery")
	case t.caps.MaxDelay > 0 && out.Delay > t.caps.MaxDelay:
		return fmt.Errorf("Delay is %v, MaxDelay is %v: %w", out.Delay, t.caps.MaxDelay, errors.ErrUnsupported)
	case out.TimeToBeReceived < 0:
		return fmt.Errorf("TimeToBeReceived is negative: %v", out.TimeToBeReceived)
	case out.TimeToBeReceived > 0 && !t.caps.TimeToBeReceived:
		return unsupported("TimeToBeReceived")
	}
	size := 0
	for key, value := range out.Headers.All() {
		if key == "" {
			return fmt.Errorf("%w: a key is empty", core.ErrInvalidHeader)
		}
		if !validText(key) || !validText(value) {
			return fmt.Errorf("%w: %q is not UTF-8 or its value is not", core.ErrInvalidHeader, key)
		}
		if limit := t.caps.MaxHeaderKeyBytes; limit > 0 && len(key) > limit {
			return &core.TooLargeError{Limit: "MaxHeaderKeyBytes", Max: limit, Size: len(key)}
		}
		size += len(key) + len(value)
	}
	if limit := t.caps.MaxHeaderBytes; limit > 0 && size > limit {
		return &core.TooLargeError{Limit: "MaxHeaderBytes", Max: limit, Size: size}
	}
	size += len(out.Body)
	if limit := t.caps.MaxMessageBytes; limit > 0 && size > limit {
		return &core.TooLargeError{Limit: "MaxMessageBytes", Max: limit, Size: size}
	}
	return nil
}

// validText reports whether s is UTF-8. Nearly all headers are short and ASCII,
// which a loop finds out in less time than the call of utf8.ValidString takes.
func validText(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return utf8.ValidString(s)
		}
	}
	return true
}

// accepted returns a SendError that says of every message that it was accepted,
// for the caller to correct.
func accepted(msgs []core.Outgoing) *core.SendError {
	results := make([]core.SendResult, len(msgs))
	for i := range msgs {
		results[i] = core.SendResult{ID: msgs[i].ID, To: msgs[i].Queue + msgs[i].Topic, State: core.SendAccepted}
	}
	return &core.SendError{Results: results}
}

// refuseAll returns a SendError that says of every message that it was refused:
// the bad one for the cause, the others because of it. A bad below 0 means that
// the cause concerns all of them.
func refuseAll(msgs []core.Outgoing, bad int, cause error) *core.SendError {
	refused := accepted(msgs)
	for i := range refused.Results {
		refused.Results[i].State = core.SendRefused
		refused.Results[i].Err = cause
		if bad >= 0 && bad != i {
			refused.Results[i].Err = fmt.Errorf("not sent because message %s was refused", msgs[bad].ID)
		}
	}
	return refused
}
