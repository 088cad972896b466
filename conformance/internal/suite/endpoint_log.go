package suite

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// endpointLog has the log records of a case's endpoints, of level Warn and above. If an
// expected event does not happen, they show the engine's actions.
type endpointLog struct {
	mu    sync.Mutex
	used  bool
	lines []string
}

// Limits of the log lines that a failure shows.
const (
	loggedLines = 6
	loggedBytes = 400 // of one line
)

// logger returns a logger that writes to the log, and passes each error to logged.
func (l *endpointLog) logger(logged func(error)) *slog.Logger {
	l.mu.Lock()
	l.used = true
	l.mu.Unlock()
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey, "endpoint", "instance", "logger":
				return slog.Attr{}
			}
			if err, ok := a.Value.Any().(error); ok {
				logged(err)
			}
			return a
		},
	}))
}

// Write implements io.Writer. It is called with one line at a time.
func (l *endpointLog) Write(line []byte) (int, error) {
	text := strings.ToValidUTF8(string(line[:min(len(line), loggedBytes)]), "")
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, strings.TrimSpace(text))
	if len(l.lines) > loggedLines {
		l.lines = slices.Delete(l.lines, 0, 1)
	}
	return len(line), nil
}

// told returns the last lines, for the end of a failure's text. Without an endpoint it is
// "".
func (l *endpointLog) told() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.used {
		return ""
	}
	if len(l.lines) == 0 {
		return "\nthe endpoint has logged no warning"
	}
	return "\nthe endpoint's last warnings:\n" + strings.Join(l.lines, "\n")
}
