package core

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// This file is about the log lines of retries (Config.LogRepeats). In an outage every
// attempt fails for one cause, with a line each. Lines beyond the limit are counted
// instead.

const (
	defaultLogRepeats = 100
	// repeatWindow is the time for which lines of one cause are counted.
	repeatWindow = 10 * time.Second
	// maxCauses limits the causes that are distinguished in a window. Further causes count
	// as one.
	maxCauses = 1000
)

// failureCause is the key by which lines about failed attempts are grouped.
type failureCause struct {
	logger               *slog.Logger // which action follows
	messageType, handler string
	textHash             uint64 // of the error's text
}

// repeatLimiter counts lines about retries by their cause.
type repeatLimiter struct {
	limit int // for each cause in a window; 0 means no limit

	mu        sync.Mutex
	windowEnd time.Time // the window lasts until the timer has reported the omitted lines
	causes    map[failureCause]*repeatedLines
	timer     *time.Timer // set while lines were omitted in the window
}

// repeatedLines counts the lines of one cause in a window.
type repeatedLines struct {
	level   slog.Level
	lines   int
	omitted int
	since   time.Time // of the first omitted line
	until   time.Time // of the newest
	err     error     // of the newest
}

// allows reports whether a line is to be written, and counts it.
func (r *repeatLimiter) allows(to *slog.Logger, level slog.Level, f *failure) bool {
	if r.limit == 0 {
		return true
	}
	c := failureCause{to, f.MessageType, f.Handler, hashErrorText(errorText(f.Err))}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.causes == nil || r.timer == nil && !f.FailedAt.Before(r.windowEnd) {
		r.causes, r.windowEnd = map[failureCause]*repeatedLines{}, f.FailedAt.Add(repeatWindow)
	}
	if r.causes[c] == nil && len(r.causes) >= maxCauses {
		c = failureCause{logger: to}
	}
	seen := r.causes[c]
	if seen == nil {
		seen = &repeatedLines{level: level}
		r.causes[c] = seen
	}
	seen.lines++
	if seen.lines <= r.limit {
		return true
	}
	if seen.omitted++; seen.omitted == 1 {
		seen.since = f.FailedAt
	}
	seen.until, seen.err = f.FailedAt, f.Err
	if r.timer == nil {
		r.timer = time.AfterFunc(r.windowEnd.Sub(f.FailedAt), r.flush)
	}
	return false
}

// flush logs the number of omitted lines, and begins a new window.
func (r *repeatLimiter) flush() {
	r.mu.Lock()
	stopTimer(&r.timer)
	causes := r.causes
	r.causes = nil
	r.mu.Unlock()
	for c, seen := range causes {
		if seen.omitted > 0 {
			c.logger.LogAttrs(context.Background(), seen.level, "further attempts failed for the same reason; their log lines were left out (Config.LogRepeats)",
				slog.Int("attempts", seen.omitted), slog.Time("since", seen.since), slog.Time("until", seen.until),
				slog.String("message_type", c.messageType), slog.String("handler", c.handler), slog.Any("error", seen.err))
		}
	}
}

// maxHashedBytes is the length of an error's text that distinguishes causes.
const maxHashedBytes = 1 << 10

// hashErrorText hashes a text without its numbers and ids: all words that contain a digit
// count as equal.
func hashErrorText(text string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211 // of FNV-1a
	sum := uint64(offset)
	add := func(b byte) { sum = (sum ^ uint64(b)) * prime }
	text = text[:min(len(text), maxHashedBytes)]
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
