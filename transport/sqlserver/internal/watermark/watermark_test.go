package watermark

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestWatermark_RescansTheWholeIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watermark
		first := time.Now()
		from := w.From(false)
		if !from.Time.IsZero() {
			t.Errorf("the first fetch starts at %v, want the beginning", from.Time)
		}
		w.Advance(from, 2, 2, first, time.Millisecond)
		if got := w.From(false).Time; !got.Equal(first) {
			t.Errorf("after a full fetch it is %v, want %v", got, first)
		}
		if got := w.From(true).Time; !got.IsZero() {
			t.Errorf("in an idle queue it is %v, want the beginning", got)
		}
		time.Sleep(wholeLook + time.Millisecond)
		if got := w.From(false).Time; !got.IsZero() {
			t.Errorf("after %v it is %v, want the beginning", wholeLook, got)
		}
		w.Advance(w.From(false), 2, 2, first, time.Second)
		time.Sleep(wholeLook + time.Millisecond)
		if got := w.From(false).Time; !got.Equal(first) {
			t.Errorf("after a slow look at the whole index it is %v, want %v for longer", got, first)
		}
	})
}

func TestWatermark_FindsReleasedMessages(t *testing.T) {
	t.Parallel()
	first := time.Now()
	due := first.Add(-time.Minute)
	var w Watermark
	w.Advance(w.From(false), 2, 2, first, 0)
	w.Lower(due)
	if got := w.From(false).Time; !got.Equal(due) {
		t.Errorf("it is %v, want %v", got, due)
	}
	during := w.From(false)
	w.Lower(due)
	w.Advance(during, 2, 2, first, 0)
	if got := w.From(false).Time; !got.Equal(due) {
		t.Errorf("a message was given back during the fetch: it is %v, want %v", got, due)
	}
	w.Advance(w.From(false), 1, 2, first, 0)
	if got := w.From(false).Time; !got.IsZero() {
		t.Errorf("at the end of the queue it is %v, want the beginning", got)
	}
}
