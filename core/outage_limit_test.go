package core_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// outageFixture is an endpoint whose adapter the test plays.
type outageFixture struct {
	*fixture
	ep        *core.Endpoint
	run       *runningEndpoint
	report    func(core.ConnectionChange)
	criticals recorder[error]
}

func withOutages(t *testing.T, c core.Config, body func(o *outageFixture)) {
	t.Helper()
	bubble(t, func(fx *fixture) {
		o := &outageFixture{fixture: fx}
		c.Observers = append(c.Observers, core.Observer{CriticalError: func(_ context.Context, _ *core.Endpoint, err error) { o.criticals.add(err) }})
		o.ep, o.run = fx.runOrders(c, func(context.Context, *core.Message) error { return nil })
		o.report = fx.broker.reportConnection
		body(o)
	})
}

func (o *outageFixture) loseConnection(err error) {
	o.report(core.ConnectionChange{Err: err, Since: time.Now(), RetryIn: time.Second})
}

func (o *outageFixture) restoreConnection() {
	o.report(core.ConnectionChange{Connected: true, Since: time.Now()})
}

// wantCriticals checks how many critical errors there were.
func (o *outageFixture) wantCriticals(when string, n int) {
	o.Helper()
	equal(o.fixture, "critical errors "+when, o.criticals.len(), n)
	equal(o.fixture, "critical errors counted "+when, int(o.ep.Health().CriticalErrors), n)
}

func TestOutageLimit_ShorterOutageIsNoCriticalError(t *testing.T) {
	withOutages(t, core.Config{}, func(o *outageFixture) {
		for range 5 {
			o.loseConnection(errBoom)
			o.advance(2*time.Minute - time.Nanosecond)
			o.restoreConnection()
			o.advance(time.Minute)
		}
		o.wantCriticals("after short outages", 0)
	})
}

func TestOutageLimit_OneCriticalErrorForEachOutage(t *testing.T) {
	withOutages(t, core.Config{OutageLimit: time.Minute}, func(o *outageFixture) {
		began := time.Now()
		errLast := errors.New("refused")
		o.loseConnection(errBoom)
		for range 59 {
			o.advance(time.Second)
			o.loseConnection(errLast)
		}
		o.report(core.ConnectionChange{}) // an adapter that tells no error any more
		o.wantCriticals("before the limit", 0)
		o.advance(time.Second)
		o.wantCriticals("at the limit", 1)
		outage := o.criticals.all()[0]
		if !errors.Is(outage, core.ErrOutage) || !errors.Is(outage, errLast) {
			o.Errorf("critical error %#v", outage)
		}
		if text := outage.Error(); !containsAll(text, began.UTC().Format(time.RFC3339), "1m0s", "OutageLimit", "refused") {
			o.Errorf("critical error %q", text)
		}
		for range 100 {
			o.loseConnection(errBoom)
			o.advance(time.Minute)
		}
		o.wantCriticals("while the adapter repeats itself", 1)
		o.restoreConnection()
		o.restoreConnection()
		o.enqueue("m1")
		o.wantDepth("orders", 0)
		o.loseConnection(errBoom)
		o.advance(time.Minute)
		o.wantCriticals("after a second outage", 2)
	})
}

// Nothing more is told than that the connection was lost.
func TestOutageLimit_SilentAdapter(t *testing.T) {
	withOutages(t, core.Config{}, func(o *outageFixture) {
		o.report(core.ConnectionChange{})
		o.advance(2*time.Minute - time.Nanosecond)
		o.wantCriticals("before the limit", 0)
		o.advance(time.Nanosecond)
		o.wantCriticals("at the limit", 1)
		o.advance(24 * time.Hour)
		o.wantCriticals("a day later", 1)
	})
}

// Since may be earlier than the report.
func TestOutageLimit_CountsFromSince(t *testing.T) {
	withOutages(t, core.Config{OutageLimit: time.Minute}, func(o *outageFixture) {
		o.report(core.ConnectionChange{Since: time.Now().Add(-59 * time.Second)})
		o.advance(time.Second)
		o.wantCriticals("a minute after Since", 1)
	})
}

func TestOutageLimit_Off(t *testing.T) {
	withOutages(t, core.Config{OutageLimit: core.Off}, func(o *outageFixture) {
		o.loseConnection(errBoom)
		o.advance(24 * time.Hour)
		o.wantCriticals("after a day", 0)
	})
}

func TestOutageLimit_NoneAfterRun(t *testing.T) {
	withOutages(t, core.Config{}, func(o *outageFixture) {
		o.loseConnection(errBoom)
		o.advance(time.Minute)
		if err := o.run.stop(); err != nil {
			o.Errorf("Run returned %v", err)
		}
		o.loseConnection(errBoom) // by an adapter that was left behind
		o.advance(time.Hour)
		o.wantCriticals("after Run has ended", 0)
	})
}
