package amqperror

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

func server(code int, reason string) error {
	return fmt.Errorf("declare it: %w", &amqp.Error{Code: code, Reason: reason, Server: true})
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want Kind
	}{
		{io.EOF, Outage},
		{context.DeadlineExceeded, Outage},
		{core.ErrClosed, Other},
		{transport.Permanent(errors.New("a name")), Other},
		{NewRefused(io.EOF), Refused},
		{&amqp.Error{Code: amqp.NotFound, Reason: "NOT_FOUND - no queue 'q' in vhost '/'"}, Outage}, // the library's
		{server(amqp.NotFound, "NOT_FOUND - no queue 'q' in vhost '/'"), NoQueue},
		{server(amqp.NotFound, "NOT_FOUND - no exchange 'e' in vhost '/'"), NoExchange},
		{server(amqp.NotFound, "NOT_FOUND - no binding k between e and q"), Other},
		{server(amqp.NotFound, "NOT_FOUND - home node of queue 'q' is down"), Outage},
		{server(amqp.AccessRefused, "ACCESS_REFUSED - access to queue 'q' refused for user 'app'"), Refused},
		{server(amqp.NotAllowed, "NOT_ALLOWED - access to vhost '/' refused: connection limit (5) is reached"), Outage},
		{server(amqp.NotAllowed, "NOT_ALLOWED - number of channels opened for user 'app' has reached the maximum allowed user limit of (5)"), Outage},
		{server(amqp.AccessRefused, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"), Refused},
		{NewOutage(NewRefused(io.EOF)), Outage},
		{server(amqp.PreconditionFailed, "PRECONDITION_FAILED - inequivalent arg 'durable'"), Mismatch},
		{server(amqp.ResourceLocked, "RESOURCE_LOCKED"), Other},
		{server(amqp.ConnectionForced, "CONNECTION_FORCED - shutdown"), Outage},
	} {
		if got := KindOf(c.err); got != c.want || IsTransient(c.err) != (c.want == Outage) {
			t.Errorf("%v is of kind %d, want %d", c.err, got, c.want)
		}
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	err := Explain(server(amqp.NotFound, "NOT_FOUND - no queue 'q' in vhost '/'"))
	if !errors.Is(err, core.ErrQueueNotFound) || !strings.Contains(err.Error(), "Provision") {
		t.Errorf("a missing queue is %v", err)
	}
	if second := Explain(err); second.Error() != err.Error() {
		t.Errorf("explained again it is %v", second)
	}
	if err := Explain(server(amqp.AccessRefused, "ACCESS_REFUSED - access to queue 'q' refused")); !strings.Contains(err.Error(), "rabbitmqctl set_permissions") {
		t.Errorf("a missing right is %v", err)
	}
	if err := Explain(io.EOF); err.Error() != io.EOF.Error() {
		t.Errorf("an outage is %v", err)
	}
}

func TestOfDial(t *testing.T) {
	t.Parallel()
	alert := func(text string) error { return &net.OpError{Op: "remote error", Err: errors.New("tls: " + text)} }
	for _, c := range []struct {
		err     error
		silent  bool
		refused bool
	}{
		{io.EOF, false, false},
		{context.DeadlineExceeded, true, false},
		{x509.UnknownAuthorityError{}, false, true},
		{alert("bad certificate"), false, true},
		{alert("internal error"), false, false},
		{amqp.ErrSASL, false, true},
		{amqp.ErrCredentials, true, true},
		{amqp.ErrCredentials, false, false}, // the broker may have been killed
		{server(amqp.NotAllowed, "NOT_ALLOWED - vhost 'x' not found"), false, true},
		{server(amqp.NotAllowed, "NOT_ALLOWED - connection limit (5) is reached"), false, false},
	} {
		err := OfDial(c.err, "app", c.silent)
		if got := KindOf(err) == Refused; got != c.refused || !errors.Is(err, c.err) {
			t.Errorf("%v, silent %v: refused %v, want %v", c.err, c.silent, got, c.refused)
		}
	}
}
