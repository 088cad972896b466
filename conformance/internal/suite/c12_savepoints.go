package suite

import (
	"context"
	"errors"

	"github.com/reprise-go/reprise/core"
)

// savepointCases are about undoing a part of the handler's work.
var savepointCases = []testCase{
	{rule: "C12", title: "a rollback to a savepoint undoes the work since, and keeps the work before", modes: inAtomic, needs: []need{savepoints, nativeTransactions}, run: func(t *caseT) {
		f := t.atomicFixture()
		ctx := f.delivery.BindContext(t.ctx)
		before := t.writeInTx(ctx)
		rollback := t.savepoint(f.delivery)
		undone := t.writeInTx(ctx)
		t.rollback(rollback)
		t.settleWith(completeWith, f.delivery, t.message(f.to, "sent"))
		t.wantCommitted(before, "by CompleteWith, done before the savepoint")
		t.wantNotCommitted(undone, "by CompleteWith, done between the savepoint and the rollback to it")
		t.wantQueues(f, "after a rollback to a savepoint and CompleteWith", nil, []string{"sent"})
	}},
	{rule: "C12", title: "a savepoint before any work undoes all of it", modes: inAtomic, needs: []need{savepoints, nativeTransactions}, run: func(t *caseT) {
		f := t.atomicFixture()
		ctx := f.delivery.BindContext(t.ctx)
		rollback := t.savepoint(f.delivery)
		undone := t.writeInTx(ctx)
		t.rollback(rollback)
		kept := t.writeInTx(ctx)
		t.complete(f.delivery)
		t.wantCommitted(kept, "by Complete, done after a rollback to a savepoint")
		t.wantNotCommitted(undone, "by Complete, done between the first savepoint and the rollback to it")
		t.wantQueues(f, "after a rollback to a savepoint and Complete", nil, nil)
	}},
	{rule: "C12", title: "a savepoint can be rolled back several times", modes: inAtomic, needs: []need{savepoints, nativeTransactions}, run: func(t *caseT) {
		f := t.atomicFixture()
		ctx := f.delivery.BindContext(t.ctx)
		before := t.writeInTx(ctx)
		rollback := t.savepoint(f.delivery)
		var undone []string
		for range 3 {
			undone = append(undone, t.writeInTx(ctx))
			t.rollback(rollback)
		}
		after := t.writeInTx(ctx)
		t.settleWith(completeWith, f.delivery)
		t.wantCommitted(before, "by CompleteWith, done before the savepoint")
		t.wantCommitted(after, "by CompleteWith, done after the last rollback to a savepoint")
		for _, key := range undone {
			t.wantNotCommitted(key, "by CompleteWith, done between the savepoint and a rollback to it")
		}
		t.wantQueues(f, "after three rollbacks to a savepoint and CompleteWith", nil, nil)
	}},
	{rule: "C12", title: "work after a savepoint that is not rolled back is committed", modes: inAtomic, needs: []need{savepoints, nativeTransactions}, run: func(t *caseT) {
		f := t.atomicFixture()
		ctx := f.delivery.BindContext(t.ctx)
		var kept []string
		for range 3 {
			kept = append(kept, t.writeInTx(ctx))
			t.savepoint(f.delivery)
		}
		kept = append(kept, t.writeInTx(ctx))
		t.settleWith(completeWith, f.delivery)
		for _, key := range kept {
			t.wantCommitted(key, "by CompleteWith, with savepoints in between")
		}
		t.wantQueues(f, "after savepoints and CompleteWith", nil, nil)
	}},
	{rule: "C12", title: "savepoints nest", modes: inAtomic, needs: []need{savepoints, nativeTransactions}, run: func(t *caseT) {
		f := t.atomicFixture()
		ctx := f.delivery.BindContext(t.ctx)
		first := t.writeInTx(ctx)
		t.savepoint(f.delivery)
		second := t.writeInTx(ctx)
		inner := t.savepoint(f.delivery)
		undone := t.writeInTx(ctx)
		t.rollback(inner)
		third := t.writeInTx(ctx)
		t.settleWith(completeWith, f.delivery)
		for _, key := range []string{first, second, third} {
			t.wantCommitted(key, "by CompleteWith, done outside of the part that was rolled back")
		}
		t.wantNotCommitted(undone, "by CompleteWith, done between the inner savepoint and the rollback to it")
		t.wantQueues(f, "after a rollback to the inner savepoint and CompleteWith", nil, nil)

		f = t.atomicFixture()
		ctx = f.delivery.BindContext(t.ctx)
		first = t.writeInTx(ctx)
		outer := t.savepoint(f.delivery)
		second = t.writeInTx(ctx)
		inner = t.savepoint(f.delivery)
		undone = t.writeInTx(ctx)
		t.rollback(outer)
		third = t.writeInTx(ctx)
		patient, cancel := t.withTimeout()
		defer cancel()
		if err := inner(patient); err == nil {
			t.fail("a rollback to a savepoint that an earlier one's rollback has removed is an error", "nil")
		}
		t.settleWith(completeWith, f.delivery)
		t.wantCommitted(first, "by CompleteWith, done before the outer savepoint")
		t.wantCommitted(third, "by CompleteWith, done after the rollback to the outer savepoint, with any result of a rollback to a removed one")
		t.wantNotCommitted(second, "by CompleteWith, done between the outer savepoint and the rollback to it")
		t.wantNotCommitted(undone, "by CompleteWith, done after the inner savepoint and before the rollback to the outer one")
		t.wantQueues(f, "after a rollback to the outer savepoint and CompleteWith", nil, nil)
	}},
	{rule: "C12", title: "a rollback to a savepoint repairs a broken transaction", modes: inAtomic, needs: []need{savepoints, breakableTx}, run: func(t *caseT) {
		f := t.atomicFixture()
		ctx := f.delivery.BindContext(t.ctx)
		before := t.writeInTx(ctx)
		rollback := t.savepoint(f.delivery)
		undone := t.writeInTx(ctx)
		t.breakTx(ctx)
		t.rollback(rollback)
		after := t.writeInTx(ctx)
		t.settleWith(completeWith, f.delivery, t.message(f.to, "sent"))
		t.wantCommitted(before, "by CompleteWith, done before the savepoint")
		t.wantCommitted(after, "by CompleteWith, done after the rollback to the savepoint")
		t.wantNotCommitted(undone, "by CompleteWith, done before the transaction broke")
		t.wantQueues(f, "after the transaction broke, a rollback to a savepoint and CompleteWith", nil, []string{"sent"})
	}},
	{rule: "C12", title: "Reset removes savepoints", modes: inAtomic, needs: []need{savepoints, nativeTransactions}, run: func(t *caseT) {
		f := t.atomicFixture()
		ctx := f.delivery.BindContext(t.ctx)
		undone := t.writeInTx(ctx)
		rollback := t.savepoint(f.delivery)
		t.reset(f.delivery)
		kept := t.writeInTx(ctx)
		patient, cancel := t.withTimeout()
		defer cancel()
		if err := rollback(patient); err == nil {
			t.fail("a rollback to a savepoint that was taken before Reset is an error", "nil")
		}
		t.settleWith(completeWith, f.delivery)
		t.wantCommitted(kept, "by CompleteWith, done after Reset, with any result of a rollback to a removed savepoint")
		t.wantNotCommitted(undone, "by CompleteWith, done before Reset")
		t.wantQueues(f, "after Reset and CompleteWith", nil, nil)
	}},
	savepointUndoCase("Abandon", func(t *caseT, f *atomicFixture) { t.abandon(f.delivery) }, []string{forwardedBody}, nil),
	savepointUndoCase("Release", func(t *caseT, f *atomicFixture) { t.release(f.delivery) }, []string{forwardedBody}, nil),
	savepointUndoCase("ReplaceWith", func(t *caseT, f *atomicFixture) { t.settleWith(replaceWith, f.delivery, t.message(f.to, "sent")) }, nil, []string{"sent"}),
	{rule: "C12", title: "savepoints end with the delivery", modes: inAtomic, needs: []need{savepoints}, run: func(t *caseT) {
		f := t.atomicFixture()
		rollback := t.savepoint(f.delivery)
		t.complete(f.delivery)
		ctx, cancel := t.withTimeout()
		defer cancel()
		if err := rollback(ctx); !errors.Is(err, core.ErrSettled) {
			t.fail("a rollback to a savepoint after Complete returns core.ErrSettled", "%v", err)
		}
		if _, err := f.delivery.Savepoint(ctx); !errors.Is(err, core.ErrSettled) {
			t.fail("Savepoint after Complete returns core.ErrSettled", "%v", err)
		}
		t.wantQueues(f, "after Complete and a rollback to a savepoint", nil, nil)

		f = t.atomicFixture()
		rollback = t.savepoint(f.delivery)
		f.receiver.close()
		if err := rollback(ctx); !errors.Is(err, core.ErrLockLost) {
			t.fail("a rollback to a savepoint after Receiver.Close returns core.ErrLockLost", "%v", err)
		}
		t.wantQueues(f, "after Receiver.Close and a rollback to a savepoint", []string{forwardedBody}, nil)
	}},
}

// savepointUndoCase is about a call that undoes all work, from before and after a
// savepoint.
func savepointUndoCase(name string, call func(t *caseT, f *atomicFixture), from, to []string) testCase {
	return testCase{rule: "C12", title: name + " undoes the work on both sides of a savepoint", modes: inAtomic, needs: []need{savepoints, nativeTransactions}, run: func(t *caseT) {
		f := t.atomicFixture()
		ctx := f.delivery.BindContext(t.ctx)
		before := t.writeInTx(ctx)
		rollback := t.savepoint(f.delivery)
		undone := t.writeInTx(ctx)
		t.rollback(rollback)
		after := t.writeInTx(ctx)
		call(t, f)
		for _, key := range []string{before, undone, after} {
			t.wantNotCommitted(key, "after "+name)
		}
		t.wantQueues(f, "after a rollback to a savepoint and "+name, from, to)
	}}
}

// savepoint sets a savepoint, which has to succeed.
func (t *caseT) savepoint(d core.Delivery) (rollback func(context.Context) error) {
	ctx, cancel := t.withTimeout()
	defer cancel()
	rollback, err := d.Savepoint(ctx)
	if err != nil || rollback == nil {
		t.stop("Savepoint of a delivery that is held returns a rollback", "%v", err)
	}
	return rollback
}

// rollback returns to a savepoint, which has to succeed.
func (t *caseT) rollback(rollback func(context.Context) error) {
	ctx, cancel := t.withTimeout()
	defer cancel()
	if err := rollback(ctx); err != nil {
		t.fail("a rollback to a savepoint that exists returns nil", "%v", err)
	}
}
