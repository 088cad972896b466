package sqlserver

import "time"

// watermark is the time below which the next fetches look for no message: older entries of
// the index are of removed messages, which the server keeps as long as an old transaction
// of any session might still see them. If each fetch read them again, the queue would
// become slower with each message.
type watermark struct {
	time    time.Time
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

// from returns the time from which to look for messages: the watermark while the queue is
// busy, the beginning otherwise.
func (r *receiver) from() watermark {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.watermark
	if r.idle || time.Since(f.looked) > f.every {
		f.time = time.Time{}
	}
	return f
}

// advanceWatermark raises the watermark after a fetch that started at from and found as many
// messages as found of those asked for. The first of them became available at first.
func (r *receiver) advanceWatermark(from watermark, found, asked int, first time.Time, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if from.time.IsZero() {
		r.watermark.looked = time.Now()
		r.watermark.every = max(wholeLook, wholeShare*took)
	}
	switch {
	case found < asked: // the end of the queue: look below the next time
		r.watermark.time, r.watermark.looked = time.Time{}, time.Time{}
	case r.watermark.changed == from.changed:
		r.watermark.time = first
	}
}

// lowerWatermark makes the next fetch find a message that was given back here.
func (r *receiver) lowerWatermark(due time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watermark.changed++
	if due.Before(r.watermark.time) {
		r.watermark.time = due
	}
}
