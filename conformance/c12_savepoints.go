package conformance

import (
	"context"
	"errors"

	"github.com/reprise-go/reprise/core"
)

// savepointCases are about undoing a part of the handler's work.
var savepointCases = []testCase{
	{rule: "C12", title: "a rollback to a savepoint undoes the work since, and keeps the work before", in: inAtomic, needs: []need{savepoints, nativeTransactions}, run: func(t *caseT) {
		f := t.forwarding()
		ctx := f.d.BindContext(t.ctx)
		before := t.work(ctx)
		rollback := t.savepoint(f.d)
		undone := t.work(ctx)
		t.rollback(rollback)
		t.sends(completing, f.d, t.message(f.to, "sent"))
		t.wantCommitted(before, "by CompleteWith, done before the savepoint")
		t.wantNotCommitted(undone, "by CompleteWith, done between the savepoint and the rollback to it")
		t.wantQueues(f, "after a rollback to a savepoint and CompleteWith", nil, []string{"sent"})
	}},
	{rule: "C12", title: "a savepoint before any work undoes all of it", in: inAtomic, needs: []need{savepoints, nativeTransactions}, run: func(t *caseT) {
		f := t.forwarding()
		ctx := f.d.BindContext(t.ctx)
		rollback := t.savepoint(f.d)
		undone := t.work(ctx)
		t.rollback(rollback)
		kept := t.work(ctx)
		t.complete(f.d)
		t.wantCommitted(kept, "by Complete, done after a rollback to a savepoint")
		t.wantNotCommitted(undone, "by Complete, done between the first savepoint and the rollback to it")
		t.wantQueues(f, "after a rollback to a savepoint and Complete", nil, nil)
	}},
	{rule: "C12", title: "a savepoint can be rolled back several times", in: inAtomic, needs: []need{savepoints, nativeTransactions}, run: func(t *caseT) {
		f := t.forwarding()
		ctx := f.d.BindContext(t.ctx)
		before := t.work(ctx)
		rollback := t.savepoint(f.d)
		var undone []string
		for range 3 {
			undone = append(undone, t.work(ctx))
			t.rollback(rollback)
		}
		after := t.work(ctx)
		t.sends(completing, f.d)
		t.wantCommitted(before, "by CompleteWith, done before the savepoint")
		t.wantCommitted(after, "by CompleteWith, done after the last rollback to a savepoint")
		for _, key := range undone {
			t.wantNotCommitted(key, "by CompleteWith, done between the savepoint and a rollback to it")
		}
		t.wantQueues(f, "after three rollbacks to a savepoint and CompleteWith", nil, nil)
	}},
	{rule: "C12", title: "work after a savepoint that is not rolled back is committed", in: inAtomic, needs: []need{savepoints, nativeTransactions}, run: func(t *caseT) {
		f := t.forwarding()
		ctx := f.d.BindContext(t.ctx)
		var kept []string
		for range 3 {
			kept = append(kept, t.work(ctx))
			t.savepoint(f.d)
		}
		kept = append(kept, t.work(ctx))
		t.sends(completing, f.d)
		for _, key := range kept {
			t.wantCommitted(key, "by CompleteWith, with savepoints in between")
		}
		t.wantQueues(f, "after savepoints and CompleteWith", nil, nil)
	}},
	{rule: "C12", title: "savepoints nest", in: inAtomic, needs: []need{savepoints, nativeTransactions}, run: func(t *caseT) {
		f := t.forwarding()
		ctx := f.d.BindContext(t.ctx)
		first := t.work(ctx)
		t.savepoint(f.d)
		second := t.work(ctx)
		inner := t.savepoint(f.d)
		undone := t.work(ctx)
		t.rollback(inner)
		third := t.work(ctx)
		t.sends(completing, f.d)
		for _, key := range []string{first, second, third} {
			t.wantCommitted(key, "by CompleteWith, done outside of the part that was rolled back")
		}
		t.wantNotCommitted(undone, "by CompleteWith, done between the inner savepoint and the rollback to it")
		t.wantQueues(f, "after a rollback to the inner savepoint and CompleteWith", nil, nil)

		f = t.forwarding()
		ctx = f.d.BindContext(t.ctx)
		first = t.work(ctx)
		outer := t.savepoint(f.d)
		second = t.work(ctx)
		inner = t.savepoint(f.d)
		undone = t.work(ctx)
		t.rollback(outer)
		third = t.work(ctx)
		patient, cancel := t.withTimeout()
		defer cancel()
		if err := inner(patient); err == nil {
			t.fail("a rollback to a savepoint that an earlier one's rollback has removed is an error", "nil")
		}
		t.sends(completing, f.d)
		t.wantCommitted(first, "by CompleteWith, done before the outer savepoint")
		t.wantCommitted(third, "by CompleteWith, done after the rollback to the outer savepoint, whatever a rollback to a removed one returned")
		t.wantNotCommitted(second, "by CompleteWith, done between the outer savepoint and the rollback to it")
		t.wantNotCommitted(undone, "by CompleteWith, done after the inner savepoint and before the rollback to the outer one")
		t.wantQueues(f, "after a rollback to the outer savepoint and CompleteWith", nil, nil)
	}},
	{rule: "C12", title: "a rollback to a savepoint repairs a broken transaction", in: inAtomic, needs: []need{savepoints, breakableWork}, run: func(t *caseT) {
		f := t.forwarding()
		ctx := f.d.BindContext(t.ctx)
		before := t.work(ctx)
		rollback := t.savepoint(f.d)
		undone := t.work(ctx)
		t.breakWork(ctx)
		t.rollback(rollback)
		after := t.work(ctx)
		t.sends(completing, f.d, t.message(f.to, "sent"))
		t.wantCommitted(before, "by CompleteWith, done before the savepoint")
		t.wantCommitted(after, "by CompleteWith, done after the rollback to the savepoint")
		t.wantNotCommitted(undone, "by CompleteWith, done before the transaction broke")
		t.wantQueues(f, "after the transaction broke, a rollback to a savepoint and CompleteWith", nil, []string{"sent"})
	}},
	{rule: "C12", title: "Reset removes savepoints", in: inAtomic, needs: []need{savepoints, nativeTransactions}, run: func(t *caseT) {
		f := t.forwarding()
		ctx := f.d.BindContext(t.ctx)
		undone := t.work(ctx)
		rollback := t.savepoint(f.d)
		t.reset(f.d)
		kept := t.work(ctx)
		patient, cancel := t.withTimeout()
		defer cancel()
		if err := rollback(patient); err == nil {
			t.fail("a rollback to a savepoint that was taken before Reset is an error", "nil")
		}
		t.sends(completing, f.d)
		t.wantCommitted(kept, "by CompleteWith, done after Reset, whatever a rollback to a removed savepoint returned")
		t.wantNotCommitted(undone, "by CompleteWith, done before Reset")
		t.wantQueues(f, "after Reset and CompleteWith", nil, nil)
	}},
	savepointUndoCase("Abandon", func(t *caseT, f *forwarding) { t.abandon(f.d) }, []string{forwarded}, nil),
	savepointUndoCase("Release", func(t *caseT, f *forwarding) { t.release(f.d) }, []string{forwarded}, nil),
	savepointUndoCase("ReplaceWith", func(t *caseT, f *forwarding) { t.sends(replacing, f.d, t.message(f.to, "sent")) }, nil, []string{"sent"}),
	{rule: "C12", title: "savepoints end with the delivery", in: inAtomic, needs: []need{savepoints}, run: func(t *caseT) {
		f := t.forwarding()
		rollback := t.savepoint(f.d)
		t.complete(f.d)
		ctx, cancel := t.withTimeout()
		defer cancel()
		if err := rollback(ctx); !errors.Is(err, core.ErrSettled) {
			t.fail("a rollback to a savepoint after Complete returns core.ErrSettled", "%v", err)
		}
		if _, err := f.d.Savepoint(ctx); !errors.Is(err, core.ErrSettled) {
			t.fail("Savepoint after Complete returns core.ErrSettled", "%v", err)
		}
		t.wantQueues(f, "after Complete and a rollback to a savepoint", nil, nil)

		f = t.forwarding()
		rollback = t.savepoint(f.d)
		f.r.close()
		if err := rollback(ctx); !errors.Is(err, core.ErrLockLost) {
			t.fail("a rollback to a savepoint after Receiver.Close returns core.ErrLockLost", "%v", err)
		}
		t.wantQueues(f, "after Receiver.Close and a rollback to a savepoint", []string{forwarded}, nil)
	}},
}

// savepointUndoCase is about a call that undoes all work, from before and after a
// savepoint.
func savepointUndoCase(name string, call func(t *caseT, f *forwarding), from, to []string) testCase {
	return testCase{rule: "C12", title: name + " undoes the work on both sides of a savepoint", in: inAtomic, needs: []need{savepoints, nativeTransactions}, run: func(t *caseT) {
		f := t.forwarding()
		ctx := f.d.BindContext(t.ctx)
		before := t.work(ctx)
		rollback := t.savepoint(f.d)
		undone := t.work(ctx)
		t.rollback(rollback)
		after := t.work(ctx)
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
