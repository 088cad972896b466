package sqlserver_test

import (
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// listensFor begins what a connection that listens sends first.
var listensFor = []byte(`listen "reprise_`)

// awaits calls Receive, and returns once that waits for what wakes it. The channel
// brings what it was delivered.
func awaits(t *testing.T, r core.Receiver) <-chan core.Delivery {
	t.Helper()
	received := make(chan core.Delivery, 1)
	go func() {
		defer close(received)
		var dst [1]core.Delivery
		if n, err := r.Receive(t.Context(), dst[:]); err == nil && n == 1 {
			received <- dst[0]
		}
	}()
	await(t, "Receive waits", func() bool { return sqlserver.Waits(r) })
	return received
}

// While no connection can listen, receivers poll. Afterwards they are woken again.
func TestNotify_ListenerBreaks(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	e := newBusiness(t, brokerOn(t, server), core.TransactionNone) // so that the last statement of those connections is "listen"
	sending := open(t, e.transport)
	polls, waits := open(t, e.transport), open(t, e.transport)
	waits.NeverPoll()
	polling := openReceiver(t, polls, inputQueue, e.mode)
	waiting := openReceiver(t, waits, outputQueue, e.mode)
	await(t, "both listen", func() bool { return polls.Listens() && waits.Listens() })

	const attempts = 10 // the pauses between which double, so that neither listens for a while
	var struck []<-chan struct{}
	for range attempts {
		struck = append(struck, e.broker.proxy.LoseRequest(listensFor))
	}
	if n := e.terminate(`query like 'listen%'`); n != 2 {
		t.Fatalf("%d connections listened, want 2", n)
	}
	await(t, "neither listens", func() bool { return !polls.Listens() && !waits.Listens() })
	send(t, sending, letter("polled", inputQueue), letter("found", outputQueue))
	complete(t, receive(t, polling))
	for _, s := range struck {
		next(t, "an attempt to listen fails", s)
	}
	await(t, "both listen again", func() bool { return polls.Listens() && waits.Listens() })
	complete(t, receive(t, waiting)) // messages sent during the outage

	received := awaits(t, waiting)
	send(t, sending, letter("woken", outputQueue))
	wakes(t, received)
}

// A notification that is lost is not repeated, and the next one is not held up.
func TestNotify_LostNotification(t *testing.T) {
	t.Parallel()
	for _, how := range breaks {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			e := newBusiness(t, brokerOn(t, server), core.TransactionReceiveOnly)
			sending, polls, waits := open(t, e.transport), open(t, e.transport), open(t, e.transport)
			waits.NeverPoll()
			polling := openReceiver(t, polls, inputQueue, e.mode)
			waiting := openReceiver(t, waits, outputQueue, e.mode)
			received := awaits(t, waiting)
			await(t, "the server wakes it", waits.Listens)
			await(t, "Receive waits", func() bool { return sqlserver.Waits(waiting) })
			struck := how.at(e.broker.proxy, carriedOut(statements(t, sending, inputQueue)["notify"]))
			send(t, sending, letter("polled", inputQueue))
			next(t, "the notification is lost", struck)
			complete(t, receive(t, polling))
			send(t, sending, letter("woken", outputQueue))
			wakes(t, received)
		})
	}
}
