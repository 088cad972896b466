package core_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/reprise-go/reprise/core"
)

// What the application raises is logged, counted and given to OnCriticalError, whether
// the endpoint runs or not; OnCriticalError may end it.
func TestRaiseCritical_ReachesOnCriticalError(t *testing.T) {
	bubble(t, func(b *bed) {
		var told record[string]
		var ep *core.Endpoint
		ep = b.endpoint("orders", core.Config{OnCriticalError: func(ctx context.Context, err error) {
			told.add(err.Error())
			if err.Error() == "ends" {
				if err := ep.Shutdown(ctx); err != nil {
					b.Error(err)
				}
			}
			if err.Error() == "panics" {
				panic("in OnCriticalError")
			}
		}})
		b.handle(ep, "order", func(context.Context, *core.Message) error {
			ep.RaiseCritical(errors.New("ends"))
			return nil
		})
		ep.RaiseCritical(nil)
		ep.RaiseCritical(errors.New("panics"))
		equal(b, "told before Run", fmt.Sprint(told.all()), "[panics]")
		r := b.run(ep)
		ep.RaiseCritical(errors.New("running"))
		synctest.Wait()
		equal(b, "told while running", fmt.Sprint(told.all()), "[panics running]")
		equal(b, "ended", r.hasEnded(), false)
		b.put("m1")
		b.must(r.wait())
		equal(b, "told", fmt.Sprint(told.all()), "[panics running ends]")
		equal(b, "logged", len(b.logs.about("critical error")), 3)
		h := ep.Health()
		equal(b, "health", fmt.Sprint(h.CriticalErrors, " ", h.LastCritical.Err), "3 ends")
	})
}
