package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/internal/calls"
)

// invoker runs middleware and handlers for an attempt, with observers around them, and knows
// the type that a message is handled as. The Endpoint owns it. It is immutable; workers use
// it, and the callers of Endpoint.Invoke.
type invoker struct {
	deps        *messageDeps
	chain       HandlerFunc               // Config.Middleware around dispatch
	scope       string                    // of the sends of the outermost middleware
	messageType func(in *Incoming) string // Config.MessageType, or nil
	observers   *observers
	endpoint    ObservedEndpoint
}

// begin begins an attempt at a message as one of the given type, or of those that a header
// lists.
func (i *invoker) begin(a *attempt, in *Incoming, messageTypes string) {
	a.message.begin(i.deps, in, i.deps.registry.selectionOf(messageTypes))
}

// resolveMessageType changes the type of an attempt to the one that Config.MessageType gives
// its message.
func (i *invoker) resolveMessageType(a *attempt) error {
	in := a.delivery.Incoming()
	messageType, err := i.configuredType(in)
	if messageType != "" {
		i.begin(a, in, messageType)
	}
	return err
}

// configuredType calls Config.MessageType.
func (i *invoker) configuredType(in *Incoming) (messageType string, err error) {
	if i.messageType == nil {
		return "", nil
	}
	defer func() {
		if value := recover(); value != nil {
			err = safeError(fmt.Errorf("Config.MessageType: %w", newPanicError(value)))
		}
	}()
	return i.messageType(in), nil
}

// typeOf returns the type that a message will be handled as, for the retries that are in
// force for it.
func (i *invoker) typeOf(in *Incoming) string {
	if len(i.deps.rules.perType) == 0 {
		return ""
	}
	messageType, err := i.configuredType(in)
	switch {
	case err != nil: // it is called again for the attempt, which fails
		return ""
	case messageType == "":
		messageType = in.Headers.Get(headers.MessageTypes)
	}
	return i.deps.registry.selectionOf(messageType).messageType
}

// invoke calls middleware and handlers, with observers around them, within the handler
// timeout.
func (i *invoker) invoke(a *attempt) error {
	if !i.deps.rules.hasTimeouts() {
		return i.observedCall(a, a)
	}
	timeout := i.deps.rules.handlerTimeout(a.message.handledAs().messageType)
	if timeout == 0 {
		return i.observedCall(a, a)
	}
	ctx, cancel := context.WithTimeoutCause(a, timeout, ErrHandlerTimeout)
	defer cancel()
	err := i.observedCall(ctx, a)
	if err != nil && errors.Is(context.Cause(ctx), ErrHandlerTimeout) {
		err = fmt.Errorf("%w of %v: %w", ErrHandlerTimeout, timeout, err)
	}
	return err
}

// observedCall calls middleware and handlers, with observers around them.
func (i *invoker) observedCall(ctx context.Context, a *attempt) error {
	a.message.ctx = ctx
	if len(i.observers.handle) == 0 {
		return i.call(ctx, a)
	}
	ctx = i.observers.handleStart(ctx, Handling{ObservedEndpoint: i.endpoint, Message: &a.message})
	a.observedCtx, a.message.ctx = ctx, ctx
	start := time.Now()
	err := calls.ErrGoexit
	defer func() {
		i.observers.handleEnd(ctx, Handling{ObservedEndpoint: i.endpoint, Message: &a.message, Err: err, Duration: time.Since(start), Duplicate: a.message.isDuplicate()})
	}()
	err = i.call(ctx, a)
	return err
}

// call calls middleware and handlers. No handler has failed if they return nil, also where
// middleware hid a failure.
func (i *invoker) call(ctx context.Context, a *attempt) error {
	err := i.chain.callRecovered(ctx, &a.message)
	if err == nil {
		a.message.recordFailingHandler(nil)
	}
	return err
}
