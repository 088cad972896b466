package core_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/reprise-go/reprise/core"
)

// A critical error of the application is logged, counted and given to observers, before Run
// too; an observer may end the endpoint.
func TestRaiseCritical_ReachesTheObserver(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var told recorder[string]
		ep := fx.newEndpoint("orders", core.Config{Observers: []core.Observer{{CriticalError: func(ctx context.Context, ep *core.Endpoint, err error) {
			told.add(err.Error())
			if err.Error() == "ends" {
				if err := ep.Shutdown(ctx); err != nil {
					fx.Error(err)
				}
			}
			if err.Error() == "panics" {
				panic("in CriticalError")
			}
		}}}})
		fx.handle(ep, "order", func(context.Context, *core.Message) error {
			ep.RaiseCritical(errors.New("ends"))
			return nil
		})
		ep.RaiseCritical(nil)
		ep.RaiseCritical(errors.New("panics"))
		equal(fx, "told before Run", fmt.Sprint(told.all()), "[panics]")
		r := fx.run(ep)
		ep.RaiseCritical(errors.New("running"))
		synctest.Wait()
		equal(fx, "told while running", fmt.Sprint(told.all()), "[panics running]")
		equal(fx, "ended", r.hasEnded(), false)
		fx.enqueue("m1")
		fx.noError(r.wait())
		equal(fx, "told", fmt.Sprint(told.all()), "[panics running ends]")
		equal(fx, "logged", len(fx.logs.find("critical error")), 3)
		h := ep.Health()
		equal(fx, "health", fmt.Sprint(h.CriticalErrors, " ", h.LastCritical.Err), "3 ends")
	})
}
