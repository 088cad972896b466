package core

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// This file is about the log lines of retries (Config.LogRepeats). In an outage every attempt
// fails for one cause, with a line each. Those beyond a number are counted instead.

const (
	defaultLogRepeats = 100
	// repeatsWindow is the time for which lines of one cause are counted.
	repeatsWindow = 10 * time.Second
	// mostCauses bounds those that are told apart in a window. Further ones count as one.
	mostCauses = 1000
)

// cause is what lines about failed attempts have in common.
type cause struct {
	logger               *slog.Logger // which action follows
	messageType, handler string
	wording              uint64 // of the error's text
}

// repeats counts lines about retries by their cause.
type repeats struct {
	limit int // for each cause in a window; 0 is without limit

	mu     sync.Mutex
	ends   time.Time // of the window; it goes on until the timer has told of what was left out
	causes map[cause]*repeated
	timer  *time.Timer // while lines were left out in the window
}

// repeated is the lines of one cause in a window.
type repeated struct {
	level   slog.Level
	lines   int
	leftOut int
	since   time.Time // of the first that was left out
	until   time.Time // of the newest
	err     error     // of the newest
}

// writes reports whether a line is to be written, and counts it.
func (r *repeats) writes(to *slog.Logger, level slog.Level, f *failure) bool {
	if r.limit == 0 {
		return true
	}
	c := cause{to, f.MessageType, f.Handler, wordingOf(errorText(f.Err))}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.causes == nil || r.timer == nil && !f.FailedAt.Before(r.ends) {
		r.causes, r.ends = map[cause]*repeated{}, f.FailedAt.Add(repeatsWindow)
	}
	if r.causes[c] == nil && len(r.causes) >= mostCauses {
		c = cause{logger: to}
	}
	seen := r.causes[c]
	if seen == nil {
		seen = &repeated{level: level}
		r.causes[c] = seen
	}
	seen.lines++
	if seen.lines <= r.limit {
		return true
	}
	if seen.leftOut++; seen.leftOut == 1 {
		seen.since = f.FailedAt
	}
	seen.until, seen.err = f.FailedAt, f.Err
	if r.timer == nil {
		r.timer = time.AfterFunc(r.ends.Sub(f.FailedAt), r.tell)
	}
	return false
}

// tell writes how many lines were left out, and begins a new window.
func (r *repeats) tell() {
	r.mu.Lock()
	stopTimer(&r.timer)
	causes := r.causes
	r.causes = nil
	r.mu.Unlock()
	for c, seen := range causes {
		if seen.leftOut > 0 {
			c.logger.LogAttrs(context.Background(), seen.level, "further attempts failed for the same reason; their log lines were left out (Config.LogRepeats)",
				slog.Int("attempts", seen.leftOut), slog.Time("since", seen.since), slog.Time("until", seen.until),
				slog.String("message_type", c.messageType), slog.String("handler", c.handler), slog.Any("error", seen.err))
		}
	}
}

// wordingBytes is how much of an error's text tells causes apart.
const wordingBytes = 1 << 10

// wordingOf hashes a text but for its numbers and ids: words that contain a digit are alike.
func wordingOf(text string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211 // of FNV-1a
	sum := uint64(offset)
	add := func(b byte) { sum = (sum ^ uint64(b)) * prime }
	text = text[:min(len(text), wordingBytes)]
	for at := 0; at < len(text); {
		end, digit := at, false
		for end < len(text) && text[end] != ' ' {
			digit = digit || '0' <= text[end] && text[end] <= '9'
			end++
		}
		if digit {
			add('#')
		} else {
			for _, b := range []byte(text[at:end]) {
				add(b)
			}
		}
		add(' ')
		at = end + 1
	}
	return sum
}
