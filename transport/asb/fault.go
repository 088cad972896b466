package asb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/asb/internal/sdkclient"
)

// fault is the kind of an error, which decides whether to retry.
type fault int

const (
	faultOutage    fault = iota // transient
	faultNoEntity               // a queue, topic or subscription does not exist
	faultRefused                // credentials or rights do not suffice
	faultNoToken                // the credential has no token: a mistake when a program starts, an outage later
	faultTooLarge               // of a message
	faultLockLost               // of a message or a session
	faultNoSession              // no session has messages
	faultOther                  // any other permanent error
)

// These are the service's error conditions, in addition to those of AMQP
// (https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-troubleshoot).
const (
	conditionLockLost        amqp.ErrCond = "com.microsoft:message-lock-lost"
	conditionSessionLockLost amqp.ErrCond = "com.microsoft:session-lock-lost"
	conditionNotFound        amqp.ErrCond = "com.microsoft:message-not-found"
	conditionTimeout         amqp.ErrCond = "com.microsoft:timeout"
	conditionDisabled        amqp.ErrCond = "com.microsoft:entity-disabled"
	conditionArgument        amqp.ErrCond = "com.microsoft:argument-error"
	conditionOutOfRange      amqp.ErrCond = "com.microsoft:argument-out-of-range"
	conditionAuthFailed      amqp.ErrCond = "com.microsoft:auth-failed"
	conditionBusy            amqp.ErrCond = "com.microsoft:server-busy"
)

// faultOf classifies an error of the SDK.
func faultOf(err error) fault {
	if transport.IsPermanent(err) || errors.Is(err, core.ErrClosed) {
		return faultOther
	}
	if _, ok := errors.AsType[*sdkclient.TokenError](err); ok && !isNetwork(err) {
		return faultNoToken
	}
	if _, ok := errors.AsType[*sessionLostError](err); ok {
		return faultLockLost
	}
	if errors.Is(err, azservicebus.ErrMessageTooLarge) {
		return faultTooLarge
	}
	if said, ok := errors.AsType[*azservicebus.Error](err); ok {
		switch said.Code {
		case azservicebus.CodeUnauthorizedAccess:
			return faultRefused
		case azservicebus.CodeLockLost:
			return faultLockLost
		case azservicebus.CodeNotFound:
			return faultNoEntity
		case azservicebus.CodeTimeout:
			return faultNoSession
		default:
			return faultOfText(err)
		}
	}
	if condition, ok := conditionOf(err); ok {
		return faultOfCondition(condition)
	}
	if said, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return faultOfStatus(said.StatusCode)
	}
	return faultOfText(err)
}

// conditionOf returns the service's name of an error.
func conditionOf(err error) (amqp.ErrCond, bool) {
	if said, ok := errors.AsType[*amqp.Error](err); ok {
		return said.Condition, true
	}
	if said, ok := errors.AsType[*amqp.LinkError](err); ok && said.RemoteErr != nil {
		return said.RemoteErr.Condition, true
	}
	return "", false
}

func faultOfCondition(condition amqp.ErrCond) fault {
	switch condition {
	case amqp.ErrCondNotFound:
		return faultNoEntity
	case amqp.ErrCondUnauthorizedAccess, conditionAuthFailed:
		return faultRefused
	case amqp.ErrCondMessageSizeExceeded:
		return faultTooLarge
	case conditionLockLost, conditionSessionLockLost, conditionNotFound:
		return faultLockLost
	case conditionTimeout:
		return faultNoSession
	case amqp.ErrCondNotAllowed, amqp.ErrCondNotImplemented, amqp.ErrCondInvalidField, amqp.ErrCondDecodeError, conditionArgument, conditionOutOfRange:
		return faultOther
	}
	// Busy, disabled, full, detached, forced, cannot be locked yet, and unknown
	// conditions may be transient.
	return faultOutage
}

func faultOfStatus(status int) fault {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return faultRefused
	case status == http.StatusNotFound:
		return faultNoEntity
	case status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status >= 500:
		return faultOutage
	default:
		return faultOther
	}
}

// faultOfText classifies an error without a type: the SDK keeps the cause of a lost
// connection only as text.
func faultOfText(err error) fault {
	if !isNetwork(err) && strings.Contains(err.Error(), "InvalidSignature") {
		return faultRefused
	}
	return faultOutage
}

func isNetwork(err error) bool {
	_, ok := errors.AsType[net.Error](err)
	return ok || errors.Is(err, context.DeadlineExceeded)
}

// answered reports whether an error is the service's answer on a working link.
func answered(err error) bool {
	if _, said := errors.AsType[managementError](err); said {
		return true
	}
	_, said := conditionOf(err)
	return said && !linkClosed(err)
}

// linkClosed reports whether an error is that of a closed link. After some conditions the
// SDK opens another link; after others it keeps the closed one, for example after
// com.microsoft:server-busy, which it takes for the answer to a request.
func linkClosed(err error) bool {
	_, closed := errors.AsType[*amqp.LinkError](err)
	return closed
}

// isBusy reports whether a busy service has refused messages, so that it has not accepted
// them.
func isBusy(err error) bool {
	if condition, _ := conditionOf(err); condition != conditionBusy {
		return false
	}
	_, notSent := errors.AsType[*notSentError](err)
	return notSent || !linkClosed(err)
}

// managementError is a negative answer to a request, such as the renewal of a lock. The SDK's type is internal.
type managementError interface {
	error
	RPCCode() int // as in HTTP
}

// isContext reports whether an error is that of a context that has ended, upon which the SDK
// has returned.
func isContext(err error) bool {
	return !sdkclient.IsStuck(err) && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}

// transient reports whether a retry may help against an error.
func transient(err error) bool {
	f := faultOf(err)
	return f == faultOutage || f == faultNoSession
}

// refused reports whether an error shows that the service did not accept the message.
func refused(err error) bool {
	if _, ok := errors.AsType[*amqp.ConnError](err); ok || linkClosed(err) {
		return false // the service may have accepted the message before
	}
	if _, ok := errors.AsType[*amqp.Error](err); ok {
		return true // its answer to the transfer
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	switch faultOf(err) {
	case faultNoEntity, faultRefused, faultNoToken, faultTooLarge, faultOther:
		return true
	default:
		return false
	}
}

// explained adds to an error its meaning to a caller of the transport, and how to fix it.
func (t *Transport) explained(err error) error {
	switch faultOf(err) {
	case faultNoEntity:
		if errors.Is(err, core.ErrQueueNotFound) || errors.Is(err, errNoTopic) {
			return err
		}
		return fmt.Errorf("%w: %w; to fix: create it with Provision (Config.Provision of the endpoint), or check the namespace, %s", core.ErrQueueNotFound, err, t.cfg.host())
	case faultRefused:
		return fmt.Errorf("%w; to fix: give the identity or policy the rights Listen and Send, and Manage for Provision and Subscribe, on %s (docs/transports/asb.md)", err, t.cfg.host())
	case faultNoToken:
		return fmt.Errorf("%w; to fix: check Config.Credential (by default the environment, a workload or managed identity, or az login), and that this machine reaches Microsoft Entra", err)
	case faultTooLarge:
		if errors.Is(err, core.ErrTooLarge) {
			return err
		}
		return fmt.Errorf("%w; to fix: make it smaller, or use the premium tier with a larger MaxMessageSizeInKilobytes: %w", err, core.ErrTooLarge)
	}
	switch condition, _ := conditionOf(err); {
	case condition == conditionDisabled:
		return fmt.Errorf("%w; to fix: set the status of the queue or topic to Active", err)
	case condition == amqp.ErrCondNotAllowed && strings.Contains(err.Error(), "requires sessions"):
		return fmt.Errorf("%w; to fix: name the queue in Config.SessionQueues", err)
	}
	return err
}

// settleError adds to an error of a settlement its meaning to the delivery.
func (r *receiver) settleError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return transport.Unavailable(ctx, ctx.Err(), transient)
	case faultOf(err) == faultLockLost || faultOf(err) == faultNoEntity:
		return fmt.Errorf("asb: settle a message of %q: %w: %w", r.address, core.ErrLockLost, err)
	}
	return fmt.Errorf("asb: settle a message of %q: %w", r.address, transport.Unavailable(ctx, r.t.explained(err), transient))
}
