package sqlserver

import "time"

// floor is the time below which no message is looked for, for a while: there are
// only entries of messages that are gone, which the server keeps for as long as
// anybody's old transaction might still see them. To read them again at each fetch
// would make the queue slower the more messages went through it.
type floor struct {
	time    time.Time
	looked  time.Time     // when all was looked at last
	every   time.Duration // how long until all is looked at again
	changed int           // counts the messages given back, which may be below
}

// wholeLook is the least time between two looks below the floor, and wholeShare the
// least multiple of what a look takes.
const (
	wholeLook  = 500 * time.Millisecond
	wholeShare = 20
)

// from returns from where to look for messages: from the floor while the queue is
// busy, from the beginning otherwise.
func (r *receiver) from() floor {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.floor
	if r.idle || time.Since(f.looked) > f.every {
		f.time = time.Time{}
	}
	return f
}

// learnFloor raises the floor after a fetch that started at one and found so many of
// those asked for, the first of which became available at a time.
func (r *receiver) learnFloor(from floor, found, asked int, first time.Time, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if from.time.IsZero() {
		r.floor.looked = time.Now()
		r.floor.every = max(wholeLook, wholeShare*took)
	}
	switch {
	case found < asked: // the end of the queue: look below the next time
		r.floor.time, r.floor.looked = time.Time{}, time.Time{}
	case r.floor.changed == from.changed:
		r.floor.time = first
	}
}

// lower makes the next fetch find a message that was given back here.
func (r *receiver) lower(due time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.floor.changed++
	if due.Before(r.floor.time) {
		r.floor.time = due
	}
}
