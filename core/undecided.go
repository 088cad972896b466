package core

import "log/slog"

// A shutdown that interrupts users' code must not decide about a failed message: a policy
// or HandleFailed that obeys its cancelled context has made no decision. The message is
// released uncounted, and the next run decides (R27). Only in TransactionNone, which
// cannot release messages, the message is moved.

// undecidedError is the error of HandleFailed or EditFailed after a shutdown interrupted
// it.
type undecidedError struct{ cause error }

func (e *undecidedError) Error() string { return "cut off by the shutdown: " + e.cause.Error() }

// interruptedByShutdown reports whether a failure of user code may come from the
// shutdown, which has cancelled its context, and the message can be released.
func (r *runner) interruptedByShutdown() bool {
	return r.handlerCtx.Err() != nil && r.ep.mode != TransactionNone
}

// releaseUndecided releases a failed message whose policy, HandleFailed or EditFailed was
// interrupted with cause. The release undoes their work in the delivery's transaction, as
// it does that of a handler.
func (r *runner) releaseUndecided(a *attempt, f *failure, cause error) {
	if r.lockLost(a) {
		r.endLockLost(a)
		return
	}
	r.ep.log.logFailure(a.decisionContext(), r.ep.log.recoverability, slog.LevelInfo, f, []slog.Attr{slog.Any("cause", cause)},
		"the endpoint stopped before the failure was decided; the message is given back",
		"The endpoint stopped before the failure of message '%s' was decided; the message is given back.", f.MessageID)
	r.releaseDelivery(a.decisionContext(), fetchedDelivery{a.delivery, a.lock})
	a.end()
}
