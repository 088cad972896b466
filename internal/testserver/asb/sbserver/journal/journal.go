// Package journal keeps the changes of a broker in a file.
package journal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// A Journal is the file that makes a broker durable. Each line is an operation, written before
// the operation is answered, so that an operation is stored as a whole or not at all. It
// is not synced: the journal protects against the failure of processes, not of the
// machine.
//
// A file that has grown is replaced by one with only the present state.
type Journal struct {
	path    string
	writing sync.Mutex // held while lines are written, and locked before the broker's mutex
	file    *os.File
	size    int    // of the file
	limit   int    // size at which the file is replaced
	failed  error  // of a write; nothing is written after it
	lines   []byte // unwritten lines; guarded by the broker's mutex
	spare   []byte
}

// New returns a journal without a file, which rewrite creates.
func New(path string) *Journal { return &Journal{path: path} }

// Read calls apply with each line of the journal at a path, if it exists. It ignores an incomplete last line, whose operation was not
// answered.
func Read(path string, apply func(line []byte) error) error {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(readLines(file, apply), file.Close())
}

func readLines(from io.Reader, apply func(line []byte) error) error {
	lines := bufio.NewReaderSize(from, 1<<16)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := apply(bytes.TrimSpace(line)); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
}

// AppendLocked adds a line, which the next flush writes. The broker is locked.
func (l *Journal) AppendLocked(line []byte) {
	l.lines = append(append(l.lines, line...), '\n')
}

// Flush writes the lines of all operations so far. The broker, whose mutex the function gets, is not locked. present returns
// a line with the present state of the locked broker, for a new file; nil: the broker is empty.
func (l *Journal) Flush(broker sync.Locker, present func() []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	broker.Lock()
	lines := l.lines
	l.lines = l.spare[:0]
	broker.Unlock()
	l.spare = lines
	if l.failed != nil || len(lines) == 0 {
		return l.failed
	}
	if l.size+len(lines) > l.limit {
		l.failed = l.Rewrite(broker, present) // with the changes of these lines
		return l.failed
	}
	n, err := l.file.Write(lines)
	l.size += n
	if err != nil {
		l.failed = fmt.Errorf("broker: write the journal %s: %w", l.path, err)
	}
	return l.failed
}

// minRewrite is the size below which a journal is not replaced.
const minRewrite = 64 << 20

// Rewrite writes the present state to a new file, which replaces the journal when it is
// complete. No other call is in progress, except for flush, which calls it. Its parameters are those of flush.
func (l *Journal) Rewrite(broker sync.Locker, present func() []byte) error {
	broker.Lock()
	l.lines = nil
	if line := present(); line != nil {
		l.AppendLocked(line)
	}
	lines := l.lines
	l.lines = nil
	broker.Unlock()

	fresh := l.path + ".new"
	file, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("broker: create a journal: %w", err)
	}
	if _, err := file.Write(lines); err != nil {
		return errors.Join(fmt.Errorf("broker: write the journal %s: %w", fresh, err), file.Close())
	}
	if err := os.Rename(fresh, l.path); err != nil {
		return errors.Join(fmt.Errorf("broker: replace the journal %s: %w", l.path, err), file.Close())
	}
	old := l.file
	l.file, l.size, l.limit = file, len(lines), max(minRewrite, 4*len(lines))
	if old == nil {
		return nil
	}
	return old.Close()
}

// Close closes the file.
func (l *Journal) Close() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.file.Close()
}
