package pump

import (
	"testing"
	"testing/synctest"
	"time"
)

// hang returns a pump whose two handlers hang, beside prefetched messages, until resume is
// called. The broker counts releases.
func hang(t *testing.T) (h *harness, resume func()) {
	t.Helper()
	h = newHarness(t, Rules{Prefetches: true, CountsReleases: true}, messages(0, 1000)...)
	ended := make(chan struct{})
	h.handler = func(_ *Worker[*message, attempt], m *message) {
		if m.number >= 500 {
			<-ended
		}
		time.Sleep(time.Millisecond)
	}
	h.SetLimit(2)
	pass(10 * StallTimeout)
	if started, out := h.count(&h.started), h.source.out; started != 502 || out <= 2 {
		t.Fatalf("%d messages were started and %d are unsettled, want 502 and more than the 2 slots", started, out)
	}
	return h, func() { close(ended) }
}

// A release costs a message an attempt, so it is the last resort.
func TestStall_CountedReleaseWaitsForHangTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, resume := hang(t)
		h.source.change(func() { h.source.fetched = messages(2000, 3) })
		pass(hangTimeout - 12*StallTimeout)
		if n := h.count(&h.released); n > 0 {
			t.Errorf("%d messages were released before hangTimeout", n)
		}
		pass(4 * StallTimeout)
		if out := h.source.out; out != 2 {
			t.Errorf("%d messages are unsettled after hangTimeout, want those of the 2 slots", out)
		}
		if n := h.source.newest(); n != 0 || len(h.source.fetched) > 0 {
			t.Errorf("MaxInFlight is %d, and the receiver still has %d messages", n, len(h.source.fetched))
		}
		released := h.count(&h.released)
		resume()
		pass(time.Minute)
		h.end()
		if n := h.count(&h.handled) + released; n != 1003 {
			t.Errorf("%d messages were handled or released, want 1003", n)
		}
	})
}

// A free slot ends the stall: its count begins again.
func TestStall_FreeSlotRestartsHangTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, resume := hang(t)
		pass(hangTimeout - 20*StallTimeout)
		resume()
		pass(time.Minute)
		h.end()
		h.want("released", &h.released)
		h.want("handled", &h.handled, numbers(0, 1000)...)
	})
}

// The reasons for which nothing will be started for long release at once.
func TestStall_LongStopReleasesAtOnce(t *testing.T) {
	for _, c := range []struct {
		name       string
		begin, end func(*harness)
		releases   bool
	}{
		{"short wait", func(h *harness) { h.WaitFor(WaitPutBack, hangTimeout-1) }, func(h *harness) { h.endWait(WaitPutBack) }, false},
		{"long wait", func(h *harness) { h.WaitFor(WaitPutBack, hangTimeout) }, func(h *harness) { h.endWait(WaitPutBack) }, true},
		{"paused", func(h *harness) { h.SetPaused(true) }, func(h *harness) { h.SetPaused(false) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, resume := hang(t)
				c.begin(h)
				released := h.count(&h.released)
				if (released > 0) != c.releases {
					t.Errorf("%d messages were released", released)
				}
				c.end(h)
				resume()
				pass(time.Minute)
				h.end()
				if n := h.count(&h.handled) + released; n != 1000 {
					t.Errorf("%d messages were handled or released, want 1000", n)
				}
			})
		})
	}
}
