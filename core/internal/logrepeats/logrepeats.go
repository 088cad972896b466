// Package logrepeats limits the log lines of retries. In an outage every attempt fails
// for one cause, with a line each. Lines beyond the limit are counted instead.
package logrepeats

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core/internal/calls"
)

const (
	// windowTime is the time for which lines of one cause are counted.
	windowTime = 10 * time.Second
	// maxCauses limits the causes that are distinguished in a window. Further causes count
	// as one.
	maxCauses = 1000
)

// cause is the key by which lines about failed attempts are grouped.
type cause struct {
	logger               *slog.Logger // which action follows
	messageType, handler string
	textHash             uint64 // of the error's text
}

// Limiter counts lines about retries by their cause.
type Limiter struct {
	Limit int // for each cause in a window; 0 means no limit

	mu        sync.Mutex
	windowEnd time.Time // the window lasts until the timer has reported the omitted lines
	causes    map[cause]*repeatedLines
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

// Line is a line about a failed attempt.
type Line struct {
	Logger               *slog.Logger
	Level                slog.Level
	MessageType, Handler string
	Err                  error
	FailedAt             time.Time
}

// Allows reports whether a line is to be written, and counts it.
func (r *Limiter) Allows(l Line) bool {
	if r.Limit == 0 {
		return true
	}
	c := cause{l.Logger, l.MessageType, l.Handler, hashErrorText(calls.ErrorText(l.Err))}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.causes == nil || r.timer == nil && !l.FailedAt.Before(r.windowEnd) {
		r.causes, r.windowEnd = map[cause]*repeatedLines{}, l.FailedAt.Add(windowTime)
	}
	if r.causes[c] == nil && len(r.causes) >= maxCauses {
		c = cause{logger: l.Logger}
	}
	seen := r.causes[c]
	if seen == nil {
		seen = &repeatedLines{level: l.Level}
		r.causes[c] = seen
	}
	seen.lines++
	if seen.lines <= r.Limit {
		return true
	}
	if seen.omitted++; seen.omitted == 1 {
		seen.since = l.FailedAt
	}
	seen.until, seen.err = l.FailedAt, l.Err
	if r.timer == nil {
		r.timer = time.AfterFunc(r.windowEnd.Sub(l.FailedAt), r.Flush)
	}
	return false
}

// Flush logs the number of omitted lines, and begins a new window.
func (r *Limiter) Flush() {
	r.mu.Lock()
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
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
