package suite

import (
	"context"
	"runtime/pprof"
	"testing"
)

// withoutLabels returns the harness with functions whose goroutines are not attributed
// to the case: a broker in this process, for example, is not part of the transport and
// may keep running (C14). Open keeps the label, because it opens the transport.
func (h Harness) withoutLabels() Harness {
	if queue := h.Queue; queue != nil {
		h.Queue = func(t testing.TB) (name string) {
			callUnlabeled(t, func() { name = queue(t) })
			return name
		}
	}
	if uniqueQueue := h.UniqueQueue; uniqueQueue != nil {
		h.UniqueQueue = func(t testing.TB) (queue, property string) {
			callUnlabeled(t, func() { queue, property = uniqueQueue(t) })
			return queue, property
		}
	}
	if corrupt := h.Corrupt; corrupt != nil {
		h.Corrupt = func(t testing.TB, queue string) (body []byte) {
			callUnlabeled(t, func() { body = corrupt(t, queue) })
			return body
		}
	}
	if sendNative := h.SendNative; sendNative != nil {
		h.SendNative = func(t testing.TB, queue, messageType string) (describe func(native any) string) {
			callUnlabeled(t, func() { describe = sendNative(t, queue, messageType) })
			return describe
		}
	}
	if deleteQueue := h.DeleteQueue; deleteQueue != nil {
		h.DeleteQueue = func(t testing.TB, queue string) {
			callUnlabeled(t, func() { deleteQueue(t, queue) })
		}
	}
	if deadLetters := h.DeadLetters; deadLetters != nil {
		h.DeadLetters = func(t testing.TB, queue string) (dead []DeadLetter) {
			callUnlabeled(t, func() { dead = deadLetters(t, queue) })
			return dead
		}
	}
	if mismatch := h.Mismatch; mismatch != nil {
		h.Mismatch = func(t testing.TB) (queue string, values [2]string) {
			callUnlabeled(t, func() { queue, values = mismatch(t) })
			return queue, values
		}
	}
	if connections := h.Connections; connections != nil {
		h.Connections = func(t testing.TB) (n int) {
			callUnlabeled(t, func() { n = connections(t) })
			return n
		}
	}
	if h.Broker != nil {
		h.Broker = unlabeledBroker{h.Broker}
	}
	if h.Network != nil {
		h.Network = unlabeledNetwork{h.Network}
	}
	return h
}

type unlabeledBroker struct{ broker Broker }

func (b unlabeledBroker) Kill(t testing.TB) { callUnlabeled(t, func() { b.broker.Kill(t) }) }

func (b unlabeledBroker) Start(t testing.TB) { callUnlabeled(t, func() { b.broker.Start(t) }) }

func (b unlabeledBroker) Partition(t testing.TB) (heal func()) {
	return callUnlabeledTwice(t, b.broker.Partition)
}

type unlabeledNetwork struct{ network Network }

func (n unlabeledNetwork) Cut(t testing.TB) (restore func()) {
	return callUnlabeledTwice(t, n.network.Cut)
}

func (n unlabeledNetwork) Partition(t testing.TB) (heal func()) {
	return callUnlabeledTwice(t, n.network.Partition)
}

// callUnlabeledTwice calls begin and the function that it returns, both without the
// label.
func callUnlabeledTwice(t testing.TB, begin func(testing.TB) (end func())) (end func()) {
	var labelled func()
	callUnlabeled(t, func() { labelled = begin(t) })
	return func() { callUnlabeled(t, labelled) }
}

// callUnlabeled calls f without the label of the case's goroutines.
func callUnlabeled(t testing.TB, f func()) {
	pprof.SetGoroutineLabels(context.Background())
	if t, ok := t.(*caseT); ok {
		defer t.setLabels()
	}
	f()
}
