// Package journal keeps the changes of a server in a file, from which another process restores its state.
package journal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// A Journal is the file that makes a store durable. It has one line of JSON for each change,
// written before the request is answered. It is not synced, because only processes fail, not
// the machine.
type Journal struct {
	file    *os.File
	writing sync.Mutex // held while entries are written, and locked before the store
	entries []byte     // not yet written; the store's mutex guards them
	spare   []byte
}

// Open opens the journal in a file, which it creates if it does not exist, and calls apply with each entry. It cuts off
// an incomplete last entry, whose request was not answered.
func Open(path string, apply func(entry []byte) error) (*Journal, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	if err := replayFile(file, apply); err != nil {
		return nil, errors.Join(fmt.Errorf("read the journal %s: %w; to fix: remove the file, and with it all queues and messages", path, err), file.Close())
	}
	return &Journal{file: file}, nil
}

func replayFile(file *os.File, apply func(entry []byte) error) error {
	lines, end := bufio.NewReaderSize(file, 1<<16), int64(0)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := apply(line); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		end += int64(len(line))
	}
	if err := file.Truncate(end); err != nil {
		return err
	}
	_, err := file.Seek(end, io.SeekStart)
	return err
}

// WriteLocked records an entry, which the next flush writes to the file. The store is locked.
func (l *Journal) WriteLocked(entry any) {
	raw, err := json.Marshal(entry)
	if err != nil {
		panic(fmt.Sprintf("sqs: journal: %v", err)) // it has strings and numbers only
	}
	l.entries = append(append(l.entries, raw...), '\n')
}

// Flush writes the entries of all changes so far. The lock is that of the store, which is not locked.
func (l *Journal) Flush(store sync.Locker) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	store.Lock()
	entries := l.entries
	l.entries = l.spare[:0]
	store.Unlock()
	l.spare = entries
	if len(entries) == 0 {
		return nil
	}
	if _, err := l.file.Write(entries); err != nil {
		return fmt.Errorf("sqs: write the journal %s: %w", l.file.Name(), err)
	}
	return nil
}

// Close closes the file.
func (l *Journal) Close() error { return l.file.Close() }
