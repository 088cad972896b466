//go:build darwin || linux

package process

import "sync"

// kept is how many bytes of a log are kept.
const kept = 64 << 10

// Tail is an io.Writer that keeps the last bytes written to it. The zero value is empty. Its
// methods may be called concurrently.
type Tail struct {
	mu  sync.Mutex
	end []byte
}

// Write adds p, and returns no error.
func (l *Tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = append(l.end, p...)
	if over := len(l.end) - kept; over > 0 {
		l.end = append(l.end[:0], l.end[over:]...)
	}
	return len(p), nil
}

// String returns the kept bytes.
func (l *Tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.end)
}
