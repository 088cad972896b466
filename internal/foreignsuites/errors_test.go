package foreignsuites

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	cockroach "github.com/cockroachdb/errors"
	"github.com/hashicorp/go-multierror"
	pkgerrors "github.com/pkg/errors"
	"go.uber.org/multierr"
	"golang.org/x/xerrors"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var (
	errPath = &fs.PathError{Op: "open", Path: "ledger", Err: errors.New("no such file")}
	errText = errors.New("the partner is away")
	errPkg  = pkgerrors.New("the partner is away") // with the stack of this package's initialization
)

func newPkgError() error       { return pkgerrors.New("away") }
func wrapInPkg(e error) error  { return pkgerrors.Wrap(e, "charge") }
func newCockroachError() error { return cockroach.New("away") }
func newXerror() error         { return xerrors.Errorf("charge: %w", errPath) }

// The errors of the libraries that most programs use tell their cause and their stack, in
// the headers of a failed message and in the log.
func TestErrors_OfLibraries(t *testing.T) {
	for _, test := range []struct {
		name, kind, stack string
		err               error
	}{
		{"pkg/errors", "*errors.fundamental", "foreignsuites.newPkgError\n\t", newPkgError()},
		{"pkg/errors around a cause", "*fs.PathError", "foreignsuites.wrapInPkg\n\t", wrapInPkg(errPath)},
		{"pkg/errors around a text", "*errors.withMessage", "foreignsuites.wrapInPkg\n\t", wrapInPkg(errText)},
		{"pkg/errors twice", "*errors.fundamental", "foreignsuites.newPkgError\n\t", wrapInPkg(newPkgError())},
		{"pkg/errors in fmt", "*fs.PathError", "foreignsuites.wrapInPkg\n\t", fmt.Errorf("a: %w", wrapInPkg(errPath))},
		{"pkg/errors beside a cause", "*fs.PathError", "foreignsuites.newPkgError\n\t", fmt.Errorf("%w: %w", newPkgError(), errPath)},
		{"pkg/errors in the branch of the cause", "*fs.PathError", "foreignsuites.wrapInPkg\n\t", fmt.Errorf("%w: %w", newPkgError(), wrapInPkg(errPath))},
		{"a variable of pkg/errors beside a cause", "*fs.PathError", "", fmt.Errorf("%w: %w", errPkg, errPath)},
		{"cockroachdb/errors", "*errutil.leafError", "foreignsuites.newCockroachError\n\t", newCockroachError()},
		{"cockroachdb/errors around a cause", "*fs.PathError", "foreignsuites.TestErrors_OfLibraries\n\t", cockroach.Wrap(errPath, "charge")},
		{"cockroachdb/errors joined", "*fs.PathError", "foreignsuites.TestErrors_OfLibraries\n\t", cockroach.Join(newCockroachError(), errPath)},
		{"multierr", "*fs.PathError", "", multierr.Append(errText, errPath)},
		{"multierr in fmt, with pkg/errors", "*fs.PathError", "foreignsuites.newPkgError\n\t", fmt.Errorf("a: %w", multierr.Combine(errText, newPkgError(), errPath))},
		{"go-multierror", "*fs.PathError", "", multierror.Append(nil, errText, errPath)},
		{"go-multierror with pkg/errors", "*fs.PathError", "foreignsuites.wrapInPkg\n\t", multierror.Append(errText, wrapInPkg(errPath))},
		{"xerrors", "*fs.PathError", "foreignsuites.newXerror\n", newXerror()},
		{"errors.Join", "*fs.PathError", "", errors.Join(errText, errPath)},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := core.ErrorTypeOf(test.err); got != test.kind {
				t.Errorf("the type is %s, want %s", got, test.kind)
			}
			stack, logged := failWith(t, test.err)
			if !strings.Contains(stack, test.stack) || test.stack == "" && strings.Contains(stack, ".go:") {
				t.Errorf("the header with the stack is %q, want %q in it", stack, test.stack)
			}
			if has := strings.Contains(logged, "stack="); has != (test.stack != "") {
				t.Errorf("the log has a stack: %v; it is %s", has, logged)
			}
		})
	}
}

// failWith returns the header with the stack of a message whose handler returned err, and
// the log.
func failWith(t *testing.T, err error) (stack, logged string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		transport := inmemory.Open()
		var log strings.Builder
		ep, newErr := core.New("billing", transport, core.Config{
			Logger: slog.New(slog.NewTextHandler(&log, nil)), Recoverability: core.Recoverability{ErrorQueue: "error", Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}},
		})
		if newErr != nil {
			t.Fatal(newErr)
		}
		order := core.NewMessageType[string]("order")
		core.Handle(ep, order, func(context.Context, *core.Message, string) error { return err })
		ended := make(chan error, 1)
		go func() { ended <- ep.Run(t.Context()) }()
		<-ep.Ready()
		if err := ep.Send(t.Context(), "billing", order.Of("x")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		page, err := transport.Browse(t.Context(), queues.Request{Queue: "error", Limit: 2})
		if err := errors.Join(err, ep.Shutdown(t.Context()), <-ended, transport.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		moved := page.Messages
		if len(moved) != 1 {
			t.Fatalf("%d messages are in the error queue", len(moved))
		}
		stack, logged = moved[0].Headers.Get(headers.ExceptionStackTrace), log.String()
	})
	return stack, logged
}
