//go:build darwin || linux

package postgres

import "sync"

// kept is how much of a log is kept.
const kept = 64 << 10

// tail is an io.Writer that keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	end []byte
}

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = append(l.end, p...)
	if over := len(l.end) - kept; over > 0 {
		l.end = append(l.end[:0], l.end[over:]...)
	}
	return len(p), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.end)
}
