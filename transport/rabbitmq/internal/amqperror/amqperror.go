// Package amqperror classifies the errors of connections, channels and the management API,
// and explains them to the callers of the transport.
package amqperror

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// Kind is the kind of an error, which decides whether to retry.
type Kind int

const (
	Outage     Kind = iota // transient
	NoQueue                // a queue does not exist
	NoExchange             // an exchange does not exist
	Refused                // credentials or rights do not suffice
	Mismatch               // something exists, but not as it was declared
	Other                  // any other permanent error
)

// refusedError is the refusal of a connection by the broker or by the check of its
// certificate.
type refusedError struct{ error }

func (e *refusedError) Unwrap() error { return e.error }

// NewRefused returns an error of kind Refused because of err.
func NewRefused(err error) error { return &refusedError{err} }

// outageError is an error that may pass, although its cause alone would be permanent.
type outageError struct{ error }

func (e *outageError) Unwrap() error { return e.error }

// NewOutage returns an error of kind Outage because of err.
func NewOutage(err error) error { return &outageError{err} }

// KindOf classifies an error of a connection or a channel. The broker's reason counts only
// in an answer to a request: the reason for which a consumer's channel was closed is always
// an outage.
func KindOf(err error) Kind {
	if errors.As(err, new(*outageError)) {
		return Outage
	}
	if errors.As(err, new(*refusedError)) {
		return Refused
	}
	if transport.IsPermanent(err) || errors.Is(err, core.ErrClosed) {
		return Other
	}
	said, ok := errors.AsType[*amqp.Error](err)
	if !ok || !said.Server {
		return Outage
	}
	switch said.Code {
	case amqp.NotFound:
		switch {
		case strings.Contains(said.Reason, "no queue '"):
			return NoQueue
		case strings.Contains(said.Reason, "no exchange '"):
			return NoExchange
		case strings.Contains(said.Reason, "no binding "):
			return Other
		}
		return Outage // a queue whose leader cannot be reached is "not found" too
	case amqp.AccessRefused, amqp.NotAllowed:
		if limitReached(said) {
			return Outage
		}
		return Refused
	case amqp.PreconditionFailed:
		if QueueLimitReached(said) {
			return Other
		}
		return Mismatch
	case amqp.ResourceLocked, amqp.NotImplemented, amqp.CommandInvalid, amqp.SyntaxError:
		return Other
	default:
		return Outage
	}
}

// limitReached reports whether there are too many connections or channels of the user, in
// the virtual host or on the node. This is transient, because others may end: above all
// those whose loss the broker has not noticed yet.
func limitReached(said *amqp.Error) bool {
	return said.Code == amqp.NotAllowed && (strings.HasSuffix(said.Reason, "is reached") || strings.Contains(said.Reason, "has reached the "))
}

// QueueLimitReached reports whether a queue was refused because there are too many: in the
// virtual host or in the cluster.
func QueueLimitReached(err error) bool {
	said, ok := errors.AsType[*amqp.Error](err)
	return ok && said.Server && said.Code == amqp.PreconditionFailed && strings.Contains(said.Reason, "queue limit") && strings.HasSuffix(said.Reason, "is reached")
}

// RefusesUser reports whether the broker closed a channel because of the user-id of a message.
func RefusesUser(err error) bool {
	said, ok := errors.AsType[*amqp.Error](err)
	return ok && said.Server && said.Code == amqp.PreconditionFailed && strings.HasPrefix(said.Reason, "PRECONDITION_FAILED - user_id ")
}

// IsTransient reports whether a retry may help against an error.
func IsTransient(err error) bool { return KindOf(err) == Outage }

// MayPass reports whether an error may pass for a receiver that has worked before: a refusal
// then comes from a change on the broker, such as a rotation of credentials, or from another
// consumer, and ends with it.
func MayPass(err error) bool { kind := KindOf(err); return kind == Outage || kind == Refused }

// explainedError is an error with its remedy.
type explainedError struct {
	error
	remedy string
}

func (e *explainedError) Error() string { return e.error.Error() + "; " + e.remedy }
func (e *explainedError) Unwrap() error { return e.error }

// Explain adds to an error its meaning for the caller of the transport, and the remedy.
func Explain(err error) error {
	if errors.As(err, new(*explainedError)) {
		return err
	}
	said, _ := errors.AsType[*amqp.Error](err)
	kind := KindOf(err)
	remedy := ""
	switch {
	case kind == NoQueue:
		if !errors.Is(err, core.ErrQueueNotFound) {
			err = fmt.Errorf("%w: %w", core.ErrQueueNotFound, err)
		}
		remedy = "create it with Provision (Config.Provision of the endpoint)"
	case said == nil || !said.Server:
	case QueueLimitReached(err):
		remedy = "remove queues, or raise the limit with rabbitmqctl set_vhost_limits or in rabbitmq.conf"
	case limitReached(said):
		remedy = "close others, or raise the limit with rabbitmqctl set_vhost_limits, set_user_limits or in rabbitmq.conf"
	case kind == Refused && strings.Contains(said.Reason, "in exclusive use"):
		remedy = "another consumer has the queue for itself (exclusive): end it, or wait until it ends"
	case kind == Refused && strings.Contains(said.Reason, "access to "):
		remedy = "grant it with rabbitmqctl set_permissions, see docs/transports/rabbitmq.md"
	}
	if remedy == "" {
		return err
	}
	return &explainedError{err, remedy}
}

// OfDial returns the error for a connection that could not be made because of err. It is of
// kind Refused if a retry does not help. silent says that the broker closed the connection
// without an error some time after it received the credentials of user, which is how it
// refuses them; a broker that is killed during the handshake closes it at once.
func OfDial(err error, user string, silent bool) error {
	said, _ := errors.AsType[*amqp.Error](err)
	switch {
	case errors.As(err, new(*tls.CertificateVerificationError)),
		errors.As(err, new(x509.UnknownAuthorityError)),
		errors.As(err, new(x509.HostnameError)),
		errors.As(err, new(x509.CertificateInvalidError)),
		errors.As(err, new(tls.RecordHeaderError)):
		return &refusedError{err}
	case refusesCertificate(err):
		return &refusedError{fmt.Errorf("the broker refused the client's certificate, or wants one (certfile and keyfile in the URL, or Config.TLS): %w", err)}
	case said == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case said == amqp.ErrSASL:
		return &refusedError{fmt.Errorf("the broker offers none of the authentication mechanisms: %w", err)}
	case said == amqp.ErrCredentials && silent:
		hint := "check both with rabbitmqctl authenticate_user"
		if user == "guest" {
			hint = "it may connect from the broker's own machine alone: make another user"
		}
		return &refusedError{fmt.Errorf("the broker refused the user %q or its password; %s: %w", user, hint, err)}
	case said.Server && (said.Code == amqp.AccessRefused || said.Code == amqp.NotAllowed) && !limitReached(said):
		return &refusedError{err}
	}
	return err
}

// TLSAlert returns the TLS alert with which the other end closed the connection.
func TLSAlert(err error) (*net.OpError, bool) {
	said, ok := errors.AsType[*net.OpError](err)
	return said, ok && said.Op == "remote error" // as package tls names it
}

// refusesCertificate reports whether the broker ended TLS because it requires another
// certificate. With TLS 1.3 it says so only after the handshake.
func refusesCertificate(err error) bool {
	said, ok := TLSAlert(err)
	if !ok {
		return false
	}
	switch strings.TrimPrefix(said.Err.Error(), "tls: ") { // its type belongs to package tls
	case "handshake failure", // with TLS 1.2, if there is none
		"bad certificate", "unsupported certificate", "revoked certificate", "expired certificate", "unknown certificate",
		"unknown certificate authority", "access denied", "certificate required":
		return true
	}
	return false
}
