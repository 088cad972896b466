package core_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

func TestErrorQueue_OfAMessageType(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		b.orders(core.Config{Recoverability: core.Recoverability{MessageTypes: map[string]core.TypeRecoverability{
			"order": {ErrorQueue: "failed-orders", Unrecoverable: []error{errBoom}},
			"price": {ErrorQueue: "failed-prices"},
		}}}, func(context.Context, *core.Message) error { return errBoom })
		b.put("m1")
		b.holds("orders", 0)
		b.holds("error", 0)
		b.holds("failed-prices", 0) // it was provisioned
		equal(b, "moved", b.only("failed-orders").ID, "m1")
	})
}

func TestDrainTimeout_OffCancelsHandlersAtOnce(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		var cause error
		_, run := b.orders(core.Config{DrainTimeout: core.Off}, func(ctx context.Context, _ *core.Message) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return cause
		})
		b.put("m1")
		start := time.Now()
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		if took := time.Since(start); took > time.Second || !errors.Is(cause, core.ErrShutdown) {
			b.Errorf("drained in %v with %v", took, cause)
		}
	})
}
