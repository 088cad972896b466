package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// A load sends orders as long as fewer than window of them are incomplete, also during a fault,
// so that there is work when it ends. Where queues keep groups, each sender sends the orders of
// one group, one after the other.
type load struct {
	ledger *ledger
	from   *core.Endpoint
	window int
	guarantees
}

const (
	senders     = 32
	sendTimeout = 10 * time.Second
	sendPause   = 50 * time.Millisecond // after an error
)

// run sends until the ledger is stopped. Each order that was begun is sent until the
// broker has accepted it, or ctx ends.
func (l *load) run(ctx context.Context) {
	var all sync.WaitGroup
	for group := range senders {
		all.Go(func() {
			for {
				id, ok := l.ledger.open(l.window, group)
				if !ok {
					return
				}
				if accepted, doubtful := l.send(ctx, id, group); accepted {
					l.ledger.accept(id, doubtful)
				}
			}
		})
	}
	all.Wait()
}

// send sends one order, and reports whether the broker has accepted it, and whether an earlier
// attempt may have arrived too.
func (l *load) send(ctx context.Context, id, group int) (accepted, doubtful bool) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, sendTimeout)
		options := core.SendOptions{ID: orderID(id)}
		if l.ordered {
			options.GroupKey = fmt.Sprintf("group-%d", group)
		}
		err := l.from.Send(limited, l.queue(orders), core.NewMessageType[body](l.messageType(orders)).Of(body{Order: id}).With(options))
		cancel()
		if err == nil {
			return true, doubtful
		}
		if !isRefused(err) {
			doubtful = true
		}
		time.Sleep(sendPause)
	}
	return false, doubtful
}

// isRefused reports whether the message was certainly not sent.
func isRefused(err error) bool {
	sent, ok := errors.AsType[*core.SendError](err)
	if !ok {
		return false
	}
	for _, r := range sent.Results {
		if r.State != core.SendRefused {
			return false
		}
	}
	return true
}
