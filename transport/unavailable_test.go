package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

func TestUnavailable(t *testing.T) {
	transient := func(error) bool { return true }
	if err := transport.Unavailable(t.Context(), nil, transient); err != nil {
		t.Errorf("Unavailable(nil) = %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(-1))
	defer cancel()
	for name, c := range map[string]struct {
		ctx       context.Context
		err       error
		transient bool
		want      bool
	}{
		"an outage":             {t.Context(), io.EOF, true, true},
		"no transient error":    {t.Context(), io.EOF, false, false},
		"the end of the call":   {ended, io.EOF, true, false},
		"a lost lock":           {t.Context(), errors.Join(core.ErrLockLost, io.EOF), true, false},
		"a passed deadline":     {expired, errors.Join(context.DeadlineExceeded, io.EOF), false, true},
		"a permanent error":     {t.Context(), fmt.Errorf("check: %w", transport.Permanent(io.EOF)), true, false},
		"a missing queue":       {t.Context(), fmt.Errorf("%w: %w", core.ErrQueueNotFound, io.EOF), true, false},
		"a transport is closed": {t.Context(), errors.Join(core.ErrClosed, io.EOF), true, false},
	} {
		got := transport.Unavailable(c.ctx, c.err, func(error) bool { return c.transient })
		if errors.Is(got, core.ErrUnavailable) != c.want {
			t.Errorf("%s matches ErrUnavailable: %t", name, !c.want)
		}
		if got.Error() != c.err.Error() || !errors.Is(got, io.EOF) {
			t.Errorf("%s becomes %v", name, got)
		}
	}
}

func TestUnavailable_NamesTheDeadline(t *testing.T) {
	expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(-1))
	defer cancel()
	err := transport.Unavailable(expired, io.EOF, func(error) bool { return true })
	for _, target := range []error{core.ErrUnavailable, context.DeadlineExceeded, io.EOF} {
		if !errors.Is(err, target) {
			t.Errorf("%v does not match %v", err, target)
		}
	}
}

func TestUnavailable_ChangesTheResultsOfASend(t *testing.T) {
	msgs := []core.Outgoing{{ID: "1", Queue: "q"}, {ID: "2", Queue: "q"}, {ID: "3", Queue: "q"}}
	sent := transport.NoneSent(msgs, 1, io.EOF)
	sent.Results[2].State, sent.Results[2].Err = core.SendAccepted, nil
	err := transport.Unavailable(t.Context(), fmt.Errorf("send: %w", sent), func(error) bool { return true })
	if !errors.Is(err, core.ErrUnavailable) || core.IsPermanent(err) || errors.Is(sent.Results[0].Err, core.ErrUnavailable) || sent.Results[2].Err != nil {
		t.Errorf("the error is %v, with the results %v", err, sent.Results)
	}
}

func TestOutages_RetryWrapsTheCause(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := new(transport.Outages).Retry(ctx, func() error { return io.EOF }, func(error) bool { return true },
		func(d time.Duration) error { return transport.Sleep(ctx, t.Context(), d, nil) })
	for _, target := range []error{core.ErrUnavailable, context.DeadlineExceeded, io.EOF} {
		if !errors.Is(err, target) {
			t.Errorf("%v does not match %v", err, target)
		}
	}
}
