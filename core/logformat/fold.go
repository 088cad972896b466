package logformat

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core/internal/calls"
	"github.com/reprise-go/reprise/core/internal/logline"
)

const (
	// windowTime is the time for which lines of one cause are counted.
	windowTime = 10 * time.Second
	// maxCauses limits the causes that are distinguished in a window. Further causes of an
	// instance count as one.
	maxCauses = 1000
)

// foldedText is the message of the line that counts the others.
const foldedText = "further attempts failed for the same reason; their log lines were left out"

// FoldRepeats returns a handler that writes the first lines about retries and deferrals of
// one cause within 10 s, at most limit (and at least 1), and counts further ones: in an
// outage every attempt fails for the same cause. At the end of the 10 s one line for each
// cause tells how many were left out (attempts, since and until when, and the newest
// error). All other lines are passed to next at once, those about messages that are moved
// or discarded among them.
//
// Causes differ by endpoint, instance, action, message type, handler and the text of the
// error, in which words with digits are ignored. At most 1,000 are distinguished at a time.
func FoldRepeats(next slog.Handler, limit int) *Folder {
	counts := &counter{limit: max(limit, 1)}
	return &Folder{&foldHandler{next: next, counts: counts}, counts}
}

// A Folder is the handler that [FoldRepeats] returns. Several endpoints may share it.
type Folder struct {
	slog.Handler

	counts *counter
}

// Flush writes the lines that count others, without waiting for the end of the 10 s. A
// program calls it before it exits.
func (f *Folder) Flush() { f.counts.flush() }

// foldHandler is the handler of a logger.
type foldHandler struct {
	next   slog.Handler
	source source
	counts *counter
}

// source has the attributes of a logger by which lines are grouped.
type source struct{ logger, endpoint, instance string }

// set sets the value of an attribute.
func (s *source) set(a slog.Attr) {
	switch a.Key {
	case "logger":
		s.logger = a.Value.String()
	case "endpoint":
		s.endpoint = a.Value.String()
	case "instance":
		s.instance = a.Value.String()
	}
}

func (h *foldHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *foldHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	s := h.source
	for _, a := range attrs {
		s.set(a)
	}
	return &foldHandler{h.next.WithAttrs(attrs), s, h.counts}
}

func (h *foldHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &foldHandler{h.next.WithGroup(name), h.source, h.counts}
}

func (h *foldHandler) Handle(ctx context.Context, r slog.Record) error {
	c, failed := cause{source: h.source}, slog.Value{}
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "message_type":
			c.messageType = a.Value.String()
		case "handler":
			c.handler = a.Value.String()
		case "error":
			failed = a.Value
		default:
			c.source.set(a)
		}
		return true
	})
	if c.source.logger != logline.ImmediateRetry && c.source.logger != logline.DelayedRetry && c.source.logger != logline.Defer {
		return h.next.Handle(ctx, r)
	}
	c.textHash = hashErrorText(textOf(failed))
	at := r.Time
	if at.IsZero() {
		at = time.Now()
	}
	if !h.counts.allows(c, h.next, r.Level, failed, at) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// textOf returns the text of the attribute error.
func textOf(v slog.Value) string {
	if err, ok := v.Any().(error); ok {
		return calls.ErrorText(err)
	}
	return v.String()
}

// cause is the key by which lines about failed attempts are grouped.
type cause struct {
	source
	messageType, handler string
	textHash             uint64 // of the error's text
}

// counter counts lines by their cause.
type counter struct {
	limit int // for each cause in a window

	mu        sync.Mutex
	windowEnd time.Time // the window lasts until the timer has reported the omitted lines
	causes    map[cause]*repeats
	timer     *time.Timer // set while lines were omitted in the window
}

// repeats counts the lines of one cause in a window.
type repeats struct {
	to      slog.Handler
	level   slog.Level
	lines   int
	omitted int
	since   time.Time  // of the first omitted line
	end     time.Time  // of the newest
	err     slog.Value // of the newest
}

// allows reports whether a line is to be written, and counts it.
func (n *counter) allows(c cause, to slog.Handler, level slog.Level, err slog.Value, at time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.causes == nil || n.timer == nil && !at.Before(n.windowEnd) {
		n.causes, n.windowEnd = map[cause]*repeats{}, at.Add(windowTime)
	}
	if n.causes[c] == nil && len(n.causes) >= maxCauses {
		c = cause{source: c.source}
	}
	seen := n.causes[c]
	if seen == nil {
		seen = &repeats{to: to, level: level}
		n.causes[c] = seen
	}
	seen.lines++
	if seen.lines <= n.limit {
		return true
	}
	if seen.omitted++; seen.omitted == 1 {
		seen.since = at
	}
	seen.end, seen.err = at, err
	if n.timer == nil {
		n.timer = time.AfterFunc(n.windowEnd.Sub(at), n.flush)
	}
	return false
}

// flush writes the number of omitted lines, and begins a new window.
func (n *counter) flush() {
	n.mu.Lock()
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
	causes := n.causes
	n.causes = nil
	n.mu.Unlock()
	for c, seen := range causes {
		if seen.omitted > 0 {
			seen.write(c)
		}
	}
}

// write writes the line that counts the omitted ones. Its errors are lost, as those of all lines.
func (s *repeats) write(c cause) {
	r := slog.NewRecord(time.Now(), s.level, foldedText, 0)
	r.AddAttrs(slog.Int("attempts", s.omitted), slog.Time("since", s.since), slog.Time("until", s.end))
	if c.messageType != "" {
		r.AddAttrs(slog.String("message_type", c.messageType))
	}
	if c.handler != "" {
		r.AddAttrs(slog.String("handler", c.handler))
	}
	r.AddAttrs(slog.Attr{Key: "error", Value: s.err})
	_ = s.to.Handle(context.Background(), r)
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
