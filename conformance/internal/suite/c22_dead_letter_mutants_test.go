package suite

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// onDeadLetter makes changes of a function that replaces DeadLetter.
func onDeadLetter(deadLetter func(d *brokenDelivery, next func() error) error) func() changes {
	return onOperation(deadLetter, "DeadLetter")
}

// copyToDead leaves a copy in the dead-letter queue.
func (d *brokenDelivery) copyToDead() {
	_ = d.sendSeparately([]core.Outgoing{{ID: d.in.ID, Queue: inmemory.DeadLetterQueue(d.receiver.cfg.Queue), Headers: d.in.Headers, Body: d.in.Body}})
}

var deadLetterMutants = []mutant{
	{rule: "C22", name: "copies the message to the dead-letter queue, and gives it back", breaks: onDeadLetter(func(d *brokenDelivery, _ func() error) error {
		d.copyToDead()
		return d.Delivery.Release(context.Background())
	})},
	{rule: "C22", name: "keeps of a dead letter's headers those alone that say why", breaks: onDeadLetter(func(d *brokenDelivery, _ func() error) error {
		dead := core.Outgoing{ID: d.in.ID, Queue: inmemory.DeadLetterQueue(d.receiver.cfg.Queue), Body: d.in.Body}
		dead.Headers.Set(inmemory.HeaderDeadLetterReason, strings.ToValidUTF8(string(d.letter.Reason), "?"))
		dead.Headers.Set(inmemory.HeaderDeadLetterDescription, strings.ToValidUTF8(d.letter.Description, "?"))
		if err := d.Delivery.Complete(context.Background()); err != nil {
			return err
		}
		return d.sendSeparately([]core.Outgoing{dead})
	})},
	{rule: "C22", name: "dead-letters a message with the headers that it was received with", breaks: onDeadLetter(func(d *brokenDelivery, next func() error) error {
		d.letter.Headers = core.Headers{}
		return next()
	})},
	{rule: "C22", name: "drops dead letters", breaks: onDeadLetter(func(d *brokenDelivery, _ func() error) error {
		return d.Delivery.Complete(context.Background())
	})},
	{rule: "C22", name: "keeps a reason that is not UTF-8", harness: func(h *Harness) {
		deadLetters := h.DeadLetters
		h.DeadLetters = func(t testing.TB, queue string) []DeadLetter {
			dead := deadLetters(t, queue)
			for i := range dead {
				if strings.HasPrefix(dead[i].Reason, "not UTF-8") {
					dead[i].Reason = "not UTF-8: \xff\xfe"
				}
			}
			return dead
		}
	}},
	{rule: "C22", name: "dead-letters without reason", breaks: onDeadLetter(func(d *brokenDelivery, next func() error) error {
		d.letter.Reason = ""
		return next()
	})},
	{rule: "C22", name: "dead-letters the description as the reason", breaks: onDeadLetter(func(d *brokenDelivery, next func() error) error {
		d.letter.Reason = headers.Failure(d.letter.Description)
		return next()
	})},
	{rule: "C22", name: "takes a dead-lettered message that failed before for a failure", breaks: onDeadLetter(func(d *brokenDelivery, next func() error) error {
		if d.in.DeliveryCount > 1 {
			return d.Delivery.Abandon(context.Background(), errHandler)
		}
		return next()
	})},
	{rule: "C22", name: "dead-letters settled and lost deliveries", config: inmemory.Config{LockDuration: 10 * time.Second},
		breaks: onDeadLetter(func(_ *brokenDelivery, next func() error) error {
			err := next()
			if errors.Is(err, core.ErrSettled) || errors.Is(err, core.ErrLockLost) {
				return nil
			}
			return err
		})},
	{rule: "C22", name: "copies lost deliveries to the dead-letter queue", config: inmemory.Config{LockDuration: 10 * time.Second},
		breaks: onDeadLetter(func(d *brokenDelivery, next func() error) error {
			err := next()
			if errors.Is(err, core.ErrLockLost) {
				d.copyToDead()
			}
			return err
		})},
	{rule: "C22", name: "copies to the dead-letter queue in an ended context, and then fails to consume", breaks: onDeadLetter(func(d *brokenDelivery, next func() error) error {
		err := next()
		if errors.Is(err, context.Canceled) {
			d.copyToDead()
		}
		return err
	})},
	{rule: "C22", name: "refuses a reason that is too long for a header", breaks: onDeadLetter(func(d *brokenDelivery, next func() error) error {
		if len(d.letter.Reason) > 255 {
			return errors.New("dead-letter: the reason is longer than 255 bytes")
		}
		return next()
	})},
	{rule: "C22", name: "refuses a reason that is not UTF-8", breaks: onDeadLetter(func(d *brokenDelivery, next func() error) error {
		if !utf8.ValidString(string(d.letter.Reason)) {
			return errors.New("dead-letter: invalid byte sequence for encoding UTF8")
		}
		return next()
	})},
	{rule: "C22", name: "writes reasons in ASCII", breaks: onDeadLetter(func(d *brokenDelivery, next func() error) error {
		d.letter.Reason = headers.Failure(strings.Map(func(r rune) rune {
			if r >= utf8.RuneSelf {
				return '?'
			}
			return r
		}, string(d.letter.Reason)))
		return next()
	})},
	{rule: "C22", name: "keeps the end of a long description alone", breaks: onDeadLetter(func(d *brokenDelivery, next func() error) error {
		d.letter.Description = d.letter.Description[max(0, len(d.letter.Description)-255):]
		return next()
	})},
	{rule: "C22", name: "forgets one of many messages that are dead-lettered at once", breaks: func() changes {
		var dead callCounter
		return onDeadLetter(func(d *brokenDelivery, next func() error) error {
			if dead.isNth(13) {
				return d.Delivery.Complete(context.Background())
			}
			return next()
		})()
	}},
	{rule: "C22", name: "cannot dead-letter malformed messages", breaks: onDeadLetter(func(d *brokenDelivery, next func() error) error {
		if d.in.Malformed != nil {
			return d.in.Malformed
		}
		return next()
	})},
	{rule: "C22", name: "undoes the handler's work when it dead-letters", breaks: onDeadLetter(undoing)},
	{rule: "C22", name: "completes a message that it should dead-letter", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "DeadLetter" {
				return d.Delivery.Complete(context.Background())
			}
			return next()
		}}
	}},
}
