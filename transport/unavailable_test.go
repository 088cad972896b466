package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

func TestUnavailable(t *testing.T) {
	always := func(error) bool { return true }
	if err := transport.Unavailable(t.Context(), nil, always); err != nil {
		t.Errorf("Unavailable(nil) = %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx       context.Context
		err       error
		transient bool
		want      bool
	}{
		"an outage":             {t.Context(), io.EOF, true, true},
		"no transient error":    {t.Context(), io.EOF, false, false},
		"the end of the call":   {ended, io.EOF, true, false},
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
