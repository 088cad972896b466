package suite

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/reprise-go/reprise/core"
)

// nativeTransactionCases are about a handler's work in the native transaction of a
// delivery, through BindContext.
var nativeTransactionCases = []testCase{
	{rule: "C12", title: "Complete commits the handler's work", modes: inAtomic, needs: []need{nativeTransactions}, run: func(t *caseT) {
		f := t.atomicFixture()
		ctx := f.delivery.BindContext(t.ctx)
		first, second := t.writeInTx(ctx), t.writeInTx(ctx)
		t.wantNotCommitted(first, "before Complete")
		t.complete(f.delivery)
		t.wantCommitted(first, "after Complete")
		t.wantCommitted(second, "after Complete")
		t.wantQueues(f, "after Complete", nil, nil)
	}},
	{rule: "C12", title: "CompleteWith commits the handler's work, the messages that it sends and the receive", modes: inAtomic, needs: []need{nativeTransactions}, run: func(t *caseT) {
		f := t.atomicFixture()
		key := t.writeInTx(f.delivery.BindContext(t.ctx))
		t.wantNotCommitted(key, "before CompleteWith")
		t.settleWith(completeWith, f.delivery, t.message(f.to, "sent"))
		t.wantCommitted(key, "after CompleteWith")
		t.wantQueues(f, "after CompleteWith", nil, []string{"sent"})
	}},
	{rule: "C12", title: "the effects of CompleteWith become visible at the same time", modes: inAtomic, needs: []need{nativeTransactions}, run: func(t *caseT) {
		f := t.atomicFixture()
		key := t.writeInTx(f.delivery.BindContext(t.ctx))
		r := t.receiver(f.transport, f.to, 1)
		settled, out := make(chan error, 1), t.message(f.to, "sent")
		t.goGuarded(func() {
			defer close(settled)
			settled <- t.trySettleWith(completeWith, f.delivery, out)
		})
		t.complete(r.next())
		if !t.suite.h.NativeTx.Committed(t, key) {
			t.fail("the messages of CompleteWith do not arrive before the handler's work is committed", "it did")
		}
		if err := <-settled; err != nil {
			t.fail("CompleteWith returns nil when its messages were sent", "%v", err)
		}
	}},
	{rule: "C12", title: "a refused CompleteWith commits nothing", modes: inAtomic, needs: []need{nativeTransactions}, run: func(t *caseT) {
		f := t.atomicFixture()
		key := t.writeInTx(f.delivery.BindContext(t.ctx))
		t.wantSettleRefused(completeWith, f.delivery, core.ErrQueueNotFound, t.message(f.to, "good"), t.message(t.uniqueName(), "lost"))
		t.wantNotCommitted(key, "after a refused CompleteWith")
		t.abandon(f.delivery)
		t.wantNotCommitted(key, "after a refused CompleteWith and Abandon")
		t.wantQueues(f, "after a refused CompleteWith and Abandon", []string{forwardedBody}, nil)
	}},
	{rule: "C12", title: "a refused CompleteWith keeps the handler's work, which one of fewer messages commits", modes: inAtomic, needs: []need{nativeTransactions}, run: func(t *caseT) {
		f := t.atomicFixture()
		key := t.writeInTx(f.delivery.BindContext(t.ctx))
		for range 2 {
			t.wantSettleRefused(completeWith, f.delivery, core.ErrQueueNotFound, t.message(f.to, "sent"), t.message(t.uniqueName(), "lost"))
		}
		t.settleWith(completeWith, f.delivery, t.message(f.to, "sent"))
		t.wantCommitted(key, "by CompleteWith, done before two others that were refused")
		t.wantQueues(f, "after two refused CompleteWith and one that was not", nil, []string{"sent"})
	}},
	{rule: "C12", title: "Reset makes a delivery usable whose CompleteWith was refused", modes: inAtomic, needs: []need{nativeTransactions}, run: func(t *caseT) {
		f := t.atomicFixture()
		ctx := f.delivery.BindContext(t.ctx)
		undone := t.writeInTx(ctx)
		t.wantSettleRefused(completeWith, f.delivery, core.ErrQueueNotFound, t.message(t.uniqueName(), "lost"))
		t.reset(f.delivery)
		kept := t.writeInTx(ctx)
		t.settleWith(completeWith, f.delivery, t.message(f.to, "sent"))
		t.wantCommitted(kept, "by CompleteWith, done after Reset")
		t.wantNotCommitted(undone, "by CompleteWith, done before Reset")
		t.wantQueues(f, "after Reset and CompleteWith", nil, []string{"sent"})
	}},
	undoCase("Abandon", func(t *caseT, f *atomicFixture) { t.abandon(f.delivery) }, []string{forwardedBody}, nil),
	undoCase("Release", func(t *caseT, f *atomicFixture) { t.release(f.delivery) }, []string{forwardedBody}, nil),
	undoCase("Receiver.Close", func(_ *caseT, f *atomicFixture) { f.receiver.close() }, []string{forwardedBody}, nil),
	undoCase("Transport.Close", func(t *caseT, f *atomicFixture) { t.close(f.transport) }, []string{forwardedBody}, nil),
	undoCase("ReplaceWith", func(t *caseT, f *atomicFixture) { t.settleWith(replaceWith, f.delivery, t.message(f.to, "sent")) }, nil, []string{"sent"}),
	undoCase("ReplaceWith of nothing", func(t *caseT, f *atomicFixture) { t.settleWith(replaceWith, f.delivery) }, nil, nil),
	undoCase("Reset", func(t *caseT, f *atomicFixture) {
		t.reset(f.delivery)
		t.complete(f.delivery)
	}, nil, nil),
	{rule: "C12", title: "work after Reset is committed, in the same context", modes: inAtomic, needs: []need{nativeTransactions}, run: func(t *caseT) {
		f := t.atomicFixture()
		ctx := f.delivery.BindContext(t.ctx)
		before := t.writeInTx(ctx)
		t.reset(f.delivery)
		between := t.writeInTx(ctx)
		t.reset(f.delivery)
		after := t.writeInTx(ctx)
		t.settleWith(completeWith, f.delivery, t.message(f.to, "sent"))
		t.wantCommitted(after, "by CompleteWith, done after the last Reset")
		t.wantNotCommitted(before, "by CompleteWith, done before Reset")
		t.wantNotCommitted(between, "by CompleteWith, done before the second Reset")
		t.wantQueues(f, "after Reset and CompleteWith", nil, []string{"sent"})
	}},
	{rule: "C12", title: "a second BindContext is of the same transaction", modes: inAtomic, needs: []need{nativeTransactions}, run: func(t *caseT) {
		f := t.atomicFixture()
		first := t.writeInTx(f.delivery.BindContext(t.ctx))
		second := t.writeInTx(f.delivery.BindContext(t.ctx))
		t.settleWith(completeWith, f.delivery)
		t.wantCommitted(first, "by CompleteWith, in the first context")
		t.wantCommitted(second, "by CompleteWith, in the second context")
		t.wantQueues(f, "after CompleteWith", nil, nil)
	}},
	{rule: "C12", title: "Reset repairs a broken transaction", modes: inAtomic, needs: []need{breakableTx}, run: func(t *caseT) {
		f := t.atomicFixture()
		ctx := f.delivery.BindContext(t.ctx)
		lost := t.writeInTx(ctx)
		t.breakTx(ctx)
		t.reset(f.delivery)
		kept := t.writeInTx(ctx)
		t.settleWith(completeWith, f.delivery, t.message(f.to, "sent"))
		t.wantCommitted(kept, "by CompleteWith, done after Reset")
		t.wantNotCommitted(lost, "by CompleteWith, done before the transaction broke")
		t.wantQueues(f, "after the transaction broke, Reset and CompleteWith", nil, []string{"sent"})
	}},
	brokenCase("ReplaceWith", func(t *caseT, f *atomicFixture) { t.settleWith(replaceWith, f.delivery, t.message(f.to, "sent")) }, nil, []string{"sent"}),
	brokenCase("Abandon", func(t *caseT, f *atomicFixture) {
		t.abandon(f.delivery)
		if redelivered := f.receiver.next(); redelivered.Incoming().DeliveryCount < 2 {
			t.fail("Abandon raises DeliveryCount to 2 also when the transaction is broken", "%d", redelivered.Incoming().DeliveryCount)
		}
	}, []string{forwardedBody}, nil),
	brokenCase("Release", func(t *caseT, f *atomicFixture) { t.release(f.delivery) }, []string{forwardedBody}, nil),
	brokenCase("Receiver.Close", func(_ *caseT, f *atomicFixture) { f.receiver.close() }, []string{forwardedBody}, nil),
	commitBrokenCase("Complete", func(f *atomicFixture, ctx context.Context) error { return f.delivery.Complete(ctx) }),
	commitBrokenCase("CompleteWith", func(f *atomicFixture, ctx context.Context) error { return f.delivery.CompleteWith(ctx, nil) }),
	{rule: "C12", title: "CompleteWith with messages in a broken transaction is an error and does nothing", modes: inAtomic, needs: []need{breakableTx}, run: func(t *caseT) {
		f := t.atomicFixture()
		ctx := f.delivery.BindContext(t.ctx)
		lost := t.writeInTx(ctx)
		t.breakTx(ctx)
		if err := t.trySettleWith(completeWith, f.delivery, t.message(f.to, "not sent")); err == nil {
			t.fail("CompleteWith is an error when the handler's work cannot be committed", "nil")
		}
		t.wantNotCommitted(lost, "by CompleteWith in a broken transaction")
		t.reset(f.delivery)
		t.settleWith(completeWith, f.delivery, t.message(f.to, "sent"))
		t.wantQueues(f, "after CompleteWith in a broken transaction, Reset and CompleteWith again", nil, []string{"sent"})
	}},
	{rule: "C12", title: "two deliveries' transactions are independent", modes: inAtomic, needs: []need{nativeTransactions}, run: independentWork},
	{rule: "C12", title: "work on a delivery that is lost is not committed", modes: inAtomic, needs: []need{nativeTransactions, locks}, shortLocks: true, run: func(t *caseT) {
		f := t.atomicFixture()
		key := t.writeInTx(f.delivery.BindContext(t.ctx))
		t.sleepPastLocks(f.delivery)
		if err := t.trySettleWith(completeWith, f.delivery, t.message(f.to, "too late")); !errors.Is(err, core.ErrLockLost) {
			t.fail("CompleteWith after the lock ran out returns core.ErrLockLost", "%v", err)
		}
		t.wantNotCommitted(key, "by a CompleteWith that was core.ErrLockLost")
		t.wantQueues(f, "after CompleteWith with a lost lock", []string{forwardedBody}, nil)
	}},
	{rule: "C12", title: "the end of the handler's context does not split the transaction", modes: inAtomic, needs: []need{nativeTransactions}, run: func(t *caseT) {
		f := t.atomicFixture()
		ctx, cancel := context.WithCancel(t.ctx)
		key := t.writeInTx(f.delivery.BindContext(ctx))
		cancel() // like a handler's own time limit
		err := t.trySettleWith(completeWith, f.delivery, t.message(f.to, "sent"))
		var from, to []string
		if err == nil {
			t.wantCommitted(key, "by a CompleteWith that returned nil")
			to = []string{"sent"}
		} else {
			t.wantNotCommitted(key, "by a CompleteWith that failed")
			from = []string{forwardedBody}
		}
		t.wantQueues(f, fmt.Sprintf("after the handler's context ended and CompleteWith returned %v", err), from, to)
	}},
}

// undoCase is about a call that undoes the handler's work.
func undoCase(name string, call func(t *caseT, f *atomicFixture), from, to []string) testCase {
	return testCase{rule: "C12", title: name + " undoes the handler's work", modes: inAtomic, needs: []need{nativeTransactions}, run: func(t *caseT) {
		f := t.atomicFixture()
		key := t.writeInTx(f.delivery.BindContext(t.ctx))
		call(t, f)
		t.wantNotCommitted(key, "after "+name)
		t.wantQueues(f, "after "+name, from, to)
		t.wantNotCommitted(key, "when its message has been received again after "+name)
	}}
}

// brokenCase is about a call that works even if the handler has broken the transaction.
func brokenCase(name string, call func(t *caseT, f *atomicFixture), from, to []string) testCase {
	return testCase{rule: "C12", title: name + " works in a broken transaction", modes: inAtomic, needs: []need{breakableTx}, run: func(t *caseT) {
		f := t.atomicFixture()
		ctx := f.delivery.BindContext(t.ctx)
		key := t.writeInTx(ctx)
		t.breakTx(ctx)
		call(t, f)
		t.wantNotCommitted(key, "after "+name+" in a broken transaction")
		t.wantQueues(f, "after "+name+" in a broken transaction", from, to)
	}}
}

// commitBrokenCase is about a call that cannot commit a broken transaction.
func commitBrokenCase(name string, call func(f *atomicFixture, ctx context.Context) error) testCase {
	return testCase{rule: "C12", title: name + " in a broken transaction is an error and keeps the message", modes: inAtomic, needs: []need{breakableTx}, run: func(t *caseT) {
		f := t.atomicFixture()
		ctx := f.delivery.BindContext(t.ctx)
		key := t.writeInTx(ctx)
		t.breakTx(ctx)
		patient, cancel := t.withTimeout()
		defer cancel()
		if err := call(f, patient); err == nil {
			t.fail(name+" is an error when the handler's work cannot be committed: a rollback is no success", "nil")
		}
		t.wantNotCommitted(key, "by "+name+" in a broken transaction")
		t.wantQueues(f, "after "+name+" in a broken transaction", []string{forwardedBody}, nil)
	}}
}

// independentWork settles many deliveries of one receiver at the same time, every other
// one without success.
func independentWork(t *caseT) {
	const n = 8
	transport := t.open()
	queue := t.queue(transport)
	t.send(transport, t.messages(queue, n)...)
	deliveries := t.receiver(transport, queue, n).take(n)
	keys := make([]string, n)
	for i := range keys {
		keys[i] = t.id()
	}
	var working, settling sync.WaitGroup
	for i, d := range deliveries {
		atomic := d
		t.goInGroup(&working, func() {
			if err := t.suite.h.NativeTx.Write(atomic.BindContext(t.ctx), keys[i]); err != nil {
				t.fail("Harness.NativeTx.Write works in the contexts of different deliveries concurrently", "%v", err)
			}
		})
	}
	working.Wait()
	for i, d := range deliveries {
		s := completeWith
		if i%2 != 0 {
			s = replaceWith
		}
		t.goInGroup(&settling, func() {
			if err := t.trySettleWith(s, d); err != nil {
				t.fail("different deliveries are settled concurrently", "%v", err)
			}
		})
	}
	settling.Wait()
	for i, key := range keys {
		if i%2 == 0 {
			t.wantCommitted(key, "by CompleteWith, with any settlement of other deliveries")
		} else {
			t.wantNotCommitted(key, "by ReplaceWith, with any settlement of other deliveries")
		}
	}
}
