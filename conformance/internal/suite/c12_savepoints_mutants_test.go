package suite

import (
	"errors"
	"sync"

	"github.com/reprise-go/reprise/core"
)

var savepointMutants = []mutant{
	{rule: "C12", name: "has nothing to undo in a rollback to a savepoint", breaks: onOperation(func(*brokenDelivery, func() error) error { return nil }, "Rollback")},
	{rule: "C12", name: "rolls back all of the transaction instead of to the savepoint", breaks: onOperation(func(d *brokenDelivery, next func() error) error {
		err := next()
		d.work.undo()
		return err
	}, "Rollback")},
	{rule: "C12", name: "commits the handler's work by Savepoint", breaks: onOperation(committing, "Savepoint")},
	{rule: "C12", name: "commits the handler's work by a rollback to a savepoint", breaks: onOperation(committing, "Rollback")},
	{rule: "C12", name: "forgets the handler's work by Savepoint", breaks: onOperation(undoing, "Savepoint")},
	{rule: "C12", name: "has a savepoint for one rollback only", breaks: func() changes {
		var used sync.Map
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "Rollback" {
				if _, repeated := used.LoadOrStore(d, true); repeated {
					return errors.New("there is no such savepoint")
				}
			}
			return next()
		}}
	}},
	{rule: "C12", name: "has room for one savepoint, that of the first Savepoint", breaks: func() changes {
		var first sync.Map
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			err := next()
			switch {
			case operation == "Savepoint":
				first.LoadOrStore(d, d.work.mark())
			case operation == "Rollback" && err == nil:
				saved, _ := first.Load(d)
				d.work.rollBackTo(saved.(savedWork))
			}
			return err
		}}
	}},
	{rule: "C12", name: "cannot return to a savepoint when the handler has broken the transaction", breaks: onOperation(func(d *brokenDelivery, next func() error) error {
		if d.work.isBroken() {
			return errAborted
		}
		return next()
	}, "Rollback")},
	{rule: "C12", name: "returns to a savepoint that does not exist any more", breaks: onOperation(func(d *brokenDelivery, next func() error) error {
		if err := next(); err != nil && !errors.Is(err, core.ErrSettled) && !errors.Is(err, core.ErrLockLost) {
			d.work.rollBackTo(d.mark)
		}
		return nil
	}, "Rollback")},
	{rule: "C12", name: "says nothing of a rollback that comes after the settlement", breaks: onOperation(func(_ *brokenDelivery, next func() error) error {
		if err := next(); !errors.Is(err, core.ErrSettled) && !errors.Is(err, core.ErrLockLost) {
			return err
		}
		return nil
	}, "Rollback")},
	{rule: "C12", name: "begins a new transaction by a rollback to a savepoint, which the context does not know", breaks: onOperation(func(d *brokenDelivery, next func() error) error {
		err := next()
		if err == nil {
			saved := d.work.mark()
			d.afresh()
			d.work.rollBackTo(saved)
		}
		return err
	}, "Rollback")},
}
