package sqlserver_test

import (
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// A delayed message that comes right after a look at the queue is found by the next one:
// that is not later than the capabilities promise. And receivers do not look all at once.
func TestPolling_PausesOfAnIdleReceiver(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{})
	provision(t, transport, "orders")
	r := openReceiver(t, transport, "orders", core.TransactionReceiveOnly)
	promised := transport.Capabilities().DelayPrecision
	pauses := map[time.Duration]bool{}
	var pause time.Duration
	for range 1000 {
		if pause = sqlserver.NextPause(r); pause > promised {
			t.Fatalf("a pause of %v, but DelayPrecision is %v", pause, promised)
		}
		pauses[pause] = true
	}
	if len(pauses) < 100 {
		t.Errorf("1000 pauses have %d lengths: many receivers would look together", len(pauses))
	}
	if pause < promised*9/10-1 {
		t.Errorf("the pauses grow to %v, want about %v", pause, promised)
	}
}
