package conformance

import (
	"context"
	"runtime/pprof"
	"testing"
)

// uncounted returns the harness with functions whose goroutines are not attributed to the
// case: a broker in this process, for example, is not part of the transport and may keep
// running (C14). Open keeps the label, because it opens the transport.
func (h Harness) uncounted() Harness {
	if queue := h.Queue; queue != nil {
		h.Queue = func(t testing.TB) (name string) {
			unlabelled(t, func() { name = queue(t) })
			return name
		}
	}
	if corrupt := h.Corrupt; corrupt != nil {
		h.Corrupt = func(t testing.TB, queue string) (body []byte) {
			unlabelled(t, func() { body = corrupt(t, queue) })
			return body
		}
	}
	if deleteQueue := h.DeleteQueue; deleteQueue != nil {
		h.DeleteQueue = func(t testing.TB, queue string) {
			unlabelled(t, func() { deleteQueue(t, queue) })
		}
	}
	if deadLetters := h.DeadLetters; deadLetters != nil {
		h.DeadLetters = func(t testing.TB, queue string) (dead []DeadLetter) {
			unlabelled(t, func() { dead = deadLetters(t, queue) })
			return dead
		}
	}
	if mismatch := h.Mismatch; mismatch != nil {
		h.Mismatch = func(t testing.TB) (queue string, values [2]string) {
			unlabelled(t, func() { queue, values = mismatch(t) })
			return queue, values
		}
	}
	if connections := h.Connections; connections != nil {
		h.Connections = func(t testing.TB) (n int) {
			unlabelled(t, func() { n = connections(t) })
			return n
		}
	}
	if h.Broker != nil {
		h.Broker = uncountedBroker{h.Broker}
	}
	if h.Network != nil {
		h.Network = uncountedNetwork{h.Network}
	}
	return h
}

type uncountedBroker struct{ broker Broker }

func (b uncountedBroker) Kill(t testing.TB) { unlabelled(t, func() { b.broker.Kill(t) }) }

func (b uncountedBroker) Start(t testing.TB) { unlabelled(t, func() { b.broker.Start(t) }) }

func (b uncountedBroker) Partition(t testing.TB) (heal func()) {
	return unlabelledTwice(t, b.broker.Partition)
}

type uncountedNetwork struct{ network Network }

func (n uncountedNetwork) Cut(t testing.TB) (restore func()) {
	return unlabelledTwice(t, n.network.Cut)
}

func (n uncountedNetwork) Partition(t testing.TB) (heal func()) {
	return unlabelledTwice(t, n.network.Partition)
}

// unlabelledTwice calls begin and the function that it returns, both without the label.
func unlabelledTwice(t testing.TB, begin func(testing.TB) (end func())) (end func()) {
	var labelled func()
	unlabelled(t, func() { labelled = begin(t) })
	return func() { unlabelled(t, labelled) }
}

// unlabelled calls f without the label of the case's goroutines.
func unlabelled(t testing.TB, f func()) {
	pprof.SetGoroutineLabels(context.Background())
	if t, ok := t.(*caseT); ok {
		defer t.setLabels()
	}
	f()
}
