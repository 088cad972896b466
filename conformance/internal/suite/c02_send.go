package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

var sendCases = []testCase{
	{rule: "C2", title: "a sent message is delivered once and unchanged", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		sent := t.messages(queue, 100) // more than brokers accept at once
		t.unchanged(transport, queue, sent...)
		t.wantLeft(queue, "after all messages were taken")
	}},
	{rule: "C2", title: "a Send of no messages succeeds", modes: inHighest, run: func(t *caseT) {
		if err := t.trySend(t.open()); err != nil {
			t.fail("Send without messages returns nil: all of them are accepted", "%v", err)
		}
	}},
	{rule: "C2", title: "a Send accepts more bytes than one message may have", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		size := 64 << 10
		if limit := t.caps.MaxMessageBytes; limit > 0 {
			size = min(size, limit/2)
		}
		sent := t.messages(queue, 24) // 1.5 MiB together
		for i := range sent {
			sent[i].Body = append(sent[i].Body, make([]byte, size)...)
		}
		t.unchanged(transport, queue, sent...)
	}},
	{rule: "C2", title: "a Send accepts more messages than a broker takes in one request", modes: inHighest, slow: true, run: func(t *caseT) {
		transport := t.open()
		// Adapters split large sends: 1,000 rows, or 2,048 unconfirmed messages, at a
		// time.
		lost := t.messages(t.uniqueName(), 2500)
		err := t.trySend(transport, lost...)
		if !errors.Is(err, core.ErrQueueNotFound) {
			t.stop("Send to a queue that does not exist returns an error matching core.ErrQueueNotFound, however many messages it has", "%v", err)
		}
		for i, r := range t.sendResults(err, lost) {
			if r.State != core.SendRefused {
				t.stop(fmt.Sprintf("each of %d messages of one Send to a queue that does not exist is core.SendRefused", len(lost)), "message %d is %v", i, r.State)
			}
		}
		queue := t.queue(transport)
		sent := t.messages(queue, 1250)
		t.send(transport, sent...)
		t.drainQuickly(transport, queue, bodiesOf(sent)...)
	}},
	{rule: "C2", title: "one Send goes to several queues", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		queues := []string{t.queue(transport), t.queue(transport), t.queue(transport)}
		want := map[string][]string{}
		var sent []core.Outgoing
		for i := range 30 {
			queue := queues[i%len(queues)]
			m := t.message(queue, fmt.Sprintf("body %d", i))
			sent = append(sent, m)
			want[queue] = append(want[queue], string(m.Body))
		}
		t.send(transport, sent...)
		for i, queue := range queues {
			t.wantContents(queue, fmt.Sprintf("after a Send to three queues, in the one numbered %d", i), want[queue], nil)
		}
	}},
	{rule: "C2", title: "many senders share a transport", modes: inHighest, slow: true, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		const senders, rounds = 64, 4
		var batches [senders][rounds][]core.Outgoing
		var want []string
		for s := range senders {
			for round := range rounds {
				for i := range 1 + t.random.IntN(3) {
					m := t.message(queue, fmt.Sprintf("sender %d, round %d, message %d", s, round, i))
					batches[s][round] = append(batches[s][round], m)
					want = append(want, string(m.Body))
				}
			}
		}
		var running sync.WaitGroup
		for _, rounds := range batches {
			t.goInGroup(&running, func() {
				for _, batch := range rounds {
					if err := t.trySend(transport, batch...); err != nil {
						t.fail("Send accepts messages from 64 goroutines at once", "%v", err)
					}
				}
			})
		}
		running.Wait()
		t.receiver(transport, queue, 32).drain(want...)
		t.wantLeft(queue, "after all messages were taken")
	}},
	{rule: "C2", title: "a Send to a queue that does not exist is an error", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		lost := t.messages(t.uniqueName(), 2)
		err := t.trySend(transport, lost...)
		if !errors.Is(err, core.ErrQueueNotFound) {
			t.stop("Send to a queue that does not exist returns an error matching core.ErrQueueNotFound", "%v", err)
		}
		for i, r := range t.sendResults(err, lost) {
			if r.State != core.SendRefused || !errors.Is(r.Err, core.ErrQueueNotFound) {
				t.fail("each message to a queue that does not exist is core.SendRefused with core.ErrQueueNotFound", "message %d is %v with %v", i, r.State, r.Err)
			}
		}
		queue := t.queue(transport)
		t.send(transport, t.message(queue, "afterwards"))
		t.wantLeft(queue, "after a Send to another queue failed", "afterwards")
	}},
	{rule: "C2", title: "a SendError has the outcome of each message", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		queue, other, missing := t.queue(transport), t.queue(transport), t.uniqueName()
		var sent []core.Outgoing
		for i, to := range []string{other, queue, missing, queue, other, missing, queue, queue, other} {
			sent = append(sent, t.message(to, fmt.Sprintf("body %d", i)))
		}
		err := t.trySend(transport, sent...)
		if !errors.Is(err, core.ErrQueueNotFound) {
			t.stop("Send returns an error matching core.ErrQueueNotFound when one queue of several does not exist", "%v", err)
		}
		must, may, refused := map[string][]string{}, map[string][]string{}, map[string][]string{}
		for i, r := range t.sendResults(err, sent) {
			to, body := sent[i].Queue, string(sent[i].Body)
			switch {
			case to == missing && (r.State != core.SendRefused || !errors.Is(r.Err, core.ErrQueueNotFound)):
				t.fail("the message to the queue that does not exist is core.SendRefused with core.ErrQueueNotFound", "message %d is %v with %v", i, r.State, r.Err)
			case r.State == core.SendAccepted:
				must[to] = append(must[to], body)
			case r.State == core.SendUnknown:
				may[to] = append(may[to], body)
			default:
				refused[to] = append(refused[to], body)
			}
		}
		t.wantContents(queue, "each message that the SendError reports as accepted", must[queue], may[queue], refused[queue]...)
		t.wantContents(other, "each message that the SendError reports as accepted", must[other], may[other], refused[other]...)
	}},
	{rule: "C2", title: "a Send to a queue that does not exist has no effect on other Sends", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		queue, missing := t.queue(transport), t.uniqueName()
		sound, lost := t.messages(queue, 100), t.messages(missing, 40)
		var running sync.WaitGroup
		for batch := range slices.Chunk(sound, 25) {
			t.goInGroup(&running, func() {
				for _, m := range batch {
					if err := t.trySend(transport, m); err != nil {
						t.fail("Send succeeds while other goroutines send to a queue that does not exist", "%v", err)
					}
				}
			})
		}
		for batch := range slices.Chunk(lost, 20) {
			t.goInGroup(&running, func() {
				for _, m := range batch {
					if err := t.trySend(transport, m); !errors.Is(err, core.ErrQueueNotFound) {
						t.fail("Send to a queue that does not exist returns an error matching core.ErrQueueNotFound, at any time", "%v", err)
					}
				}
			})
		}
		running.Wait()
		t.receiver(transport, queue, 16).drain(bodiesOf(sound)...)
		t.wantLeft(queue, "after all messages were taken")
	}},
	{rule: "C2", title: "a Send finds a queue that is created later", modes: inHighest, needs: []need{provisioning}, run: func(t *caseT) {
		transport := t.open()
		queue := t.uniqueName()
		if err := t.trySend(transport, t.message(queue, "too early")); !errors.Is(err, core.ErrQueueNotFound) {
			t.stop("Send to a queue that does not exist returns an error matching core.ErrQueueNotFound", "%v", err)
		}
		t.provision(t.open(), queue)
		t.send(transport, t.message(queue, "in time"))
		t.wantLeft(queue, "after it was created", "in time")
	}},
	{rule: "C2", title: "a Send whose context has ended returns the context's error", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		cancelled, cancel := context.WithCancel(t.ctx)
		cancel()
		expired, cancel := context.WithTimeout(t.ctx, -1)
		defer cancel()
		var must, may, refused []string
		for _, ctx := range []context.Context{cancelled, expired} {
			sent := t.messages(queue, 3)
			for i := range sent {
				sent[i].Body = fmt.Appendf(nil, "%v %d", ctx.Err(), i)
			}
			err := transport.Send(ctx, sent...)
			if !errors.Is(err, ctx.Err()) {
				t.fail(fmt.Sprintf("Send returns an error matching that of its context, %q", ctx.Err()), "%v", err)
			}
			t.sortOut(err, sent, &must, &may, &refused)
		}
		t.send(transport, t.message(queue, "afterwards"))
		t.wantContents(queue, "each accepted message", append(must, "afterwards"), may, refused...)
	}},
	{rule: "C2", title: "an interrupted Send returns the right outcome of each message", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		type attempt struct {
			sent []core.Outgoing
			in   time.Duration
			err  error
		}
		attempts := make([]attempt, 60)
		for i := range attempts {
			attempts[i].in = time.Duration(t.random.Int64N(int64(8 * time.Millisecond)))
			for j := range 1 + t.random.IntN(4) {
				attempts[i].sent = append(attempts[i].sent, t.message(queue, fmt.Sprintf("attempt %d, message %d", i, j)))
			}
		}
		var running sync.WaitGroup
		for chunk := range slices.Chunk(attempts, 15) {
			t.goInGroup(&running, func() {
				for i := range chunk {
					ctx, cancel := context.WithTimeout(t.ctx, chunk[i].in)
					chunk[i].err = transport.Send(ctx, chunk[i].sent...)
					cancel()
				}
			})
		}
		running.Wait()
		var must, may, refused []string
		for _, a := range attempts {
			t.sortOut(a.err, a.sent, &must, &may, &refused)
		}
		t.wantContents(queue, "each message that was accepted before its context ended", must, may, refused...)
	}},
	{rule: "C2", title: "a Send after Close is core.ErrClosed", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.close(transport)
		t.wantSendRefused(transport, core.ErrClosed, t.messages(queue, 2)...)
		t.wantLeft(queue, "after a Send to it by a closed transport")
	}},
	{rule: "C2", title: "a sent message is delivered after its transport was closed", modes: inHighest, run: func(t *caseT) {
		sender := t.open()
		queue := t.queue(sender)
		sent := t.messages(queue, 20)
		t.send(sender, sent[:19]...)
		t.send(sender, sent[19])
		t.close(sender) // before any receiver is opened
		t.wantLeft(queue, "after its sender closed its transport", bodiesOf(sent)...)
	}},
	{rule: "C2", title: "the sender may reuse its slice after Send", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		sent := t.messages(queue, 12)
		given := slices.Clone(sent)
		t.send(transport, given...)
		for i := range given {
			given[i] = t.message(queue, "written to the slice after Send returned")
		}
		t.wantLeft(queue, "after the slice given to Send was written to", bodiesOf(sent)...)
	}},
	{rule: "C2", title: "Send does not change the sender's messages", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		given := t.messages(queue, 3)
		sent := slices.Clone(given)
		for i := range sent {
			sent[i].Body = slices.Clone(given[i].Body)
		}
		t.send(transport, given...)
		t.wantLeft(queue, "after the Send", bodiesOf(sent)...)
		for i, m := range given {
			if got, want := m.Headers.Map(), sent[i].Headers.Map(); !maps.Equal(got, want) {
				t.fail(fmt.Sprintf("Send does not change the headers of the messages given to it, %s", excerptHeaders(want, got)), "%s", excerptHeaders(got, want))
			}
			if string(m.Body) != string(sent[i].Body) {
				t.fail(fmt.Sprintf("Send does not write to the bodies given to it, %q", sent[i].Body), "%q", m.Body)
			}
			if m.ID != sent[i].ID || m.Queue != sent[i].Queue || m.Topic != "" || m.Delay != 0 || m.TimeToBeReceived != 0 || m.GroupKey != "" || m.Properties != nil {
				t.fail(fmt.Sprintf("Send does not change the messages given to it, %+v", sent[i]), "%+v", m)
			}
		}
	}},
	{rule: "C2", title: "an id may be sent twice", modes: inHighest, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		m := t.message(queue, "the same")
		other := m
		other.Body = []byte("the same id, another body")
		t.send(transport, m, other)
		t.send(transport, m)
		t.receiver(transport, queue, 8).drain("the same", "the same", "the same id, another body")
		t.wantLeft(queue, "after all messages were taken")
	}},
	{rule: "C2", title: "a receiver may send to its own queue", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 1)
		t.send(transport, t.message(queue, "0"))
		for i := range 20 {
			d := r.next()
			if got, want := string(d.Incoming().Body), fmt.Sprint(i); got != want {
				t.stop(fmt.Sprintf("the next message is %q, the only one in the queue", want), "%q", got)
			}
			if i < 19 {
				t.send(transport, t.message(queue, fmt.Sprint(i+1))) // while this one is unsettled
			}
			t.complete(d)
		}
		t.wantLeft(queue, "after the last message was taken")
	}},
	{rule: "C2", title: "transports exchange messages", run: func(t *caseT) {
		ping, pong := t.open(), t.open() // two processes
		there, back := t.queue(ping), t.queue(pong)
		server, client := t.receiver(pong, there, 4), t.receiver(ping, back, 4)
		for i := range 10 {
			t.send(ping, t.message(there, fmt.Sprintf("request %d", i)))
			request := server.next()
			t.send(pong, t.message(back, "answer to "+string(request.Incoming().Body)))
			t.complete(request)
			reply := client.next()
			if got, want := string(reply.Incoming().Body), fmt.Sprintf("answer to request %d", i); got != want {
				t.stop(fmt.Sprintf("the answer is %q", want), "%q", got)
			}
			t.complete(reply)
		}
		t.wantLeft(there, "after all requests were answered")
		t.wantLeft(back, "after all answers were taken")
	}},
	{rule: "C2", title: "a Send whose answer was lost does not report the messages as refused", modes: inHighest, slow: true, needs: []need{ownLine}, run: func(t *caseT) {
		other := t.open()
		queue := t.queue(other)
		transport, line := t.openOnLine()
		t.sendEach(transport, queue, "before") // so that its connections are open
		line.SilenceBroker()
		sent := []core.Outgoing{t.message(queue, "one"), t.message(queue, "two")}
		ctx, cancel := t.withQuietPeriod()
		defer cancel()
		var must, may, refused []string
		t.sortOut(transport.Send(ctx, sent...), sent, &must, &may, &refused)
		t.wantContents(queue, "each message that was accepted before, or by a new connection,", append(must, "before"), may, refused...)
	}},
	{rule: "C2", title: "a Send in an outage returns an error in time, and succeeds after it", modes: inHighest, exclusive: true, needs: []need{outages, durable}, run: func(t *caseT) {
		broker := t.brokerController()
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.message(queue, "before"))
		broker.kill()
		during := t.messages(queue, 2)
		ctx, cancel := t.withQuietPeriod()
		defer cancel()
		var err error
		if !t.returnsInTime(func() { err = transport.Send(ctx, during...) }) {
			t.stop("Send, in an outage, returns when its context ends", "it has not returned %v later", t.timeout())
		}
		if err == nil {
			t.stop("Send returns an error while there is no broker that could accept the messages", "nil")
		}
		for i, r := range t.sendResults(err, during) {
			if r.State == core.SendAccepted {
				t.fail("no message is core.SendAccepted while there is no broker that could accept it", "message %d is", i)
			}
		}
		broker.start()
		after := t.message(queue, "after")
		t.sendEventually(transport, after)
		accepted := []string{"before", "after"} // the others may have been sent
		found := t.drainQueue(queue, func(found []*core.Incoming) bool { return len(missingBodies(accepted, found)) == 0 })
		if lost := missingBodies(accepted, found); len(lost) > 0 {
			t.fail(`the queue holds the messages that Send accepted, "before" and "after" the outage`, "missing are %s; it holds %s", sample(lost), sample(bodiesIn(found)))
		}
	}},
	{rule: "C2", title: "a sent message is delivered after its process was killed", modes: inHighest, needs: []need{processes}, run: func(t *caseT) {
		queue := t.queue(t.open())
		accepted := map[string]bool{}
		for range 3 {
			p := t.startWorker(workerSpec{To: queue, Prefix: t.id(), Count: 100})
			for range 1 + t.random.IntN(40) {
				p.awaitEvent(hasSent, t.timeout())
			}
			p.kill()
			for _, e := range p.allEvents() {
				accepted[e.ID] = true
			}
		}
		for _, in := range t.contents(queue, len(accepted)) {
			delete(accepted, in.ID)
		}
		if len(accepted) > 0 {
			t.fail("the queue holds every message for which Send returned nil before its process was killed", "%d are missing", len(accepted))
		}
	}},
	{rule: "C2", title: "a sent message is delivered after the broker was killed", modes: inHighest, exclusive: true, needs: []need{brokerControl, durable}, run: func(t *caseT) {
		const total, senders = 100, 4
		broker := t.brokerController()
		transport := t.open()
		queue := t.queue(transport)
		pool := t.startSenders(transport, queue, senders, total/senders)
		for round := range 3 {
			pool.awaitAccepted((round + 1) * total / 5)
			t.sleep(t.randomPause())
			broker.restart()
		}
		pool.wait()
		copies, found := map[string]int{}, t.contents(queue, total)
		for _, in := range found {
			copies[in.ID]++
		}
		missing, doubled := 0, 0
		for id, doubtful := range pool.doubtful {
			switch n := copies[id]; {
			case n == 0:
				missing++
			case n > 1 && !doubtful:
				doubled++
			}
		}
		t.measure("copies of messages sent again after an outage", float64(len(found)-len(copies)))
		if missing > 0 {
			t.fail("Durable is claimed, so every message that Send accepted is in its queue after the broker died", "%d of %d are not", missing, total)
		}
		if doubled > 0 && !t.caps.MayDuplicate {
			t.fail("a message that is core.SendRefused was not accepted, so that it is there once when it is sent again (core.SendUnknown may be either)", "%d are there more than once%s", doubled, sayUnknown)
		}
	}},
}

// sortOut classifies the messages of one Send by its result: those that must have
// arrived, those that may have, and those that must not have.
func (t *caseT) sortOut(err error, sent []core.Outgoing, must, may, refused *[]string) {
	if err == nil {
		*must = append(*must, bodiesOf(sent)...)
		return
	}
	for i, r := range t.sendResults(err, sent) {
		switch r.State {
		case core.SendAccepted:
			*must = append(*must, string(sent[i].Body))
		case core.SendUnknown:
			*may = append(*may, string(sent[i].Body))
		default:
			*refused = append(*refused, string(sent[i].Body))
		}
	}
}

// drainQuickly receives up to many messages of a queue, in the mode that takes the least
// time, and gives back the messages that it need not settle.
func (t *caseT) drainQuickly(transport core.Transport, queue string, want ...string) {
	mode := t.caps.Transactions[0]
	for _, m := range t.caps.Transactions {
		if m == core.TransactionNone || m == core.TransactionReceiveOnly && mode != core.TransactionNone {
			mode = m
		}
	}
	r := t.receiverIn(mode, transport, queue, len(want))
	r.size = 500
	seen := map[string]int{}
	for len(seen) < len(want) {
		ctx, cancel := t.withTimeout()
		got, err := r.batch(ctx, r.size)
		cancel()
		if err != nil {
			missing := slices.DeleteFunc(slices.Clone(want), func(body string) bool { return seen[body] > 0 })
			t.stop(fmt.Sprintf("%d messages that Send accepted are delivered", len(want)), "after %v without any, %d are missing: %s", t.timeout(), len(missing), sample(missing))
		}
		for _, d := range got {
			seen[string(d.Incoming().Body)]++
		}
	}
	r.close()
}
