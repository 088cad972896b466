// Package watermark decides from which time on a fetch looks for messages.
package watermark

import "time"

// Watermark is the time below which the next fetches look for no message: older entries of
// the index are of removed messages, which the server keeps as long as an old transaction
// of any session might still see them. If each fetch read them again, the queue would
// become slower with each message. It is not safe for concurrent use.
type Watermark struct {
	Time    time.Time     // zero: look at the whole index
	looked  time.Time     // when the whole index was read last
	every   time.Duration // how long until it is read again
	changed int           // counts messages that were given back, which may be below
}

// wholeLook is the minimum time between two fetches that look below the watermark, and
// wholeShare is a minimum too, as a multiple of the duration of such a fetch.
const (
	wholeLook  = 500 * time.Millisecond
	wholeShare = 20
)

// From returns the watermark from which to look for messages: without a time if the queue
// is idle, or the whole index was not read for long.
func (w *Watermark) From(idle bool) Watermark {
	f := *w
	if idle || time.Since(f.looked) > f.every {
		f.Time = time.Time{}
	}
	return f
}

// Advance raises the watermark after a fetch that started at from and found as many
// messages as found of those asked for. The first of them became available at first.
func (w *Watermark) Advance(from Watermark, found, asked int, first time.Time, took time.Duration) {
	if from.Time.IsZero() {
		w.looked = time.Now()
		w.every = max(wholeLook, wholeShare*took)
	}
	switch {
	case found < asked: // the end of the queue: look below the next time
		w.Time, w.looked = time.Time{}, time.Time{}
	case w.changed == from.changed:
		w.Time = first
	}
}

// Lower makes the next fetch find a message that was given back.
func (w *Watermark) Lower(due time.Time) {
	w.changed++
	if due.Before(w.Time) {
		w.Time = due
	}
}
