package core_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// outageBed is an endpoint whose adapter the test plays.
type outageBed struct {
	*bed
	ep        *core.Endpoint
	run       *running
	tell      func(core.ConnectionChange)
	criticals record[error]
}

func inOutages(t *testing.T, c core.Config, body func(o *outageBed)) {
	t.Helper()
	bubble(t, func(b *bed) {
		o := &outageBed{bed: b}
		c.OnCriticalError = func(_ context.Context, err error) { o.criticals.add(err) }
		o.ep, o.run = b.orders(c, func(context.Context, *core.Message) error { return nil })
		o.tell = b.broker.changeConnection
		body(o)
	})
}

func (o *outageBed) lost(err error) {
	o.tell(core.ConnectionChange{Err: err, Since: time.Now(), RetryIn: time.Second})
}

func (o *outageBed) restored() { o.tell(core.ConnectionChange{Connected: true, Since: time.Now()}) }

// wants checks how many critical errors there were.
func (o *outageBed) wants(when string, n int) {
	o.Helper()
	equal(o.bed, "critical errors "+when, o.criticals.len(), n)
	equal(o.bed, "critical errors counted "+when, int(o.ep.Health().CriticalErrors), n)
}

func TestOutageLimit_ShorterOutageIsNoCriticalError(t *testing.T) {
	inOutages(t, core.Config{}, func(o *outageBed) {
		for range 5 {
			o.lost(errBoom)
			o.pass(2*time.Minute - time.Nanosecond)
			o.restored()
			o.pass(time.Minute)
		}
		o.wants("after short outages", 0)
	})
}

func TestOutageLimit_OneCriticalErrorForEachOutage(t *testing.T) {
	inOutages(t, core.Config{OutageLimit: time.Minute}, func(o *outageBed) {
		began := time.Now()
		errLast := errors.New("refused")
		o.lost(errBoom)
		for range 59 {
			o.pass(time.Second)
			o.lost(errLast)
		}
		o.tell(core.ConnectionChange{}) // an adapter that tells no error any more
		o.wants("before the limit", 0)
		o.pass(time.Second)
		o.wants("at the limit", 1)
		outage, ok := errors.AsType[*core.OutageError](o.criticals.all()[0])
		if !ok || !outage.Since.Equal(began) || outage.Limit != time.Minute || !errors.Is(outage, errLast) {
			o.Errorf("critical error %#v", o.criticals.all()[0])
		}
		if text := outage.Error(); !containsAll(text, "2000-01-01T00:00:00Z", "1m0s", "OutageLimit", "refused") {
			o.Errorf("critical error %q", text)
		}
		for range 100 {
			o.lost(errBoom)
			o.pass(time.Minute)
		}
		o.wants("while the adapter repeats itself", 1)
		o.restored()
		o.restored()
		o.put("m1")
		o.holds("orders", 0)
		o.lost(errBoom)
		o.pass(time.Minute)
		o.wants("after a second outage", 2)
	})
}

// Nothing more is told than that the connection was lost.
func TestOutageLimit_SilentAdapter(t *testing.T) {
	inOutages(t, core.Config{}, func(o *outageBed) {
		o.tell(core.ConnectionChange{})
		o.pass(2*time.Minute - time.Nanosecond)
		o.wants("before the limit", 0)
		o.pass(time.Nanosecond)
		o.wants("at the limit", 1)
		o.pass(24 * time.Hour)
		o.wants("a day later", 1)
	})
}

// Since may be earlier than the report.
func TestOutageLimit_CountsFromSince(t *testing.T) {
	inOutages(t, core.Config{OutageLimit: time.Minute}, func(o *outageBed) {
		o.tell(core.ConnectionChange{Since: time.Now().Add(-59 * time.Second)})
		o.pass(time.Second)
		o.wants("a minute after Since", 1)
	})
}

func TestOutageLimit_Off(t *testing.T) {
	inOutages(t, core.Config{OutageLimit: core.Off}, func(o *outageBed) {
		o.lost(errBoom)
		o.pass(24 * time.Hour)
		o.wants("after a day", 0)
	})
}

func TestOutageLimit_NoneAfterRun(t *testing.T) {
	inOutages(t, core.Config{}, func(o *outageBed) {
		o.lost(errBoom)
		o.pass(time.Minute)
		if err := o.run.stop(); err != nil {
			o.Errorf("Run returned %v", err)
		}
		o.lost(errBoom) // by an adapter that was left behind
		o.pass(time.Hour)
		o.wants("after Run has ended", 0)
	})
}
