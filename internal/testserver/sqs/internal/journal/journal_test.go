package journal

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// opened opens a journal, and returns its entries.
func opened(t *testing.T, path string) (*Journal, []string) {
	t.Helper()
	var entries []string
	l, err := Open(path, func(entry []byte) error {
		entries = append(entries, strings.TrimSpace(string(entry)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return l, entries
}

func TestJournal_EntriesOutliveIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	var store sync.Mutex
	l, entries := opened(t, path)
	if len(entries) != 0 {
		t.Errorf("a new journal has %q", entries)
	}
	for _, text := range []string{"a", "b"} {
		store.Lock()
		l.WriteLocked(text)
		store.Unlock()
	}
	if err := l.Flush(&store); err != nil {
		t.Fatal(err)
	}
	store.Lock()
	l.WriteLocked("is lost")
	store.Unlock()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, entries = opened(t, path)
	defer l.Close()
	if !slices.Equal(entries, []string{`"a"`, `"b"`}) {
		t.Errorf("its entries are %q", entries)
	}
}

func TestOpen_CutsOffAnIncompleteEntry(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	if err := os.WriteFile(path, []byte("\"a\"\n\"an entry without an end"), 0o600); err != nil {
		t.Fatal(err)
	}
	var store sync.Mutex
	l, _ := opened(t, path)
	if info, err := os.Stat(path); err != nil || info.Size() != 4 {
		t.Errorf("the file has %d bytes (%v), want 4", info.Size(), err)
	}
	l.WriteLocked("c")
	if err := errors.Join(l.Flush(&store), l.Close()); err != nil {
		t.Fatal(err)
	}
	l, entries := opened(t, path)
	defer l.Close()
	if !slices.Equal(entries, []string{`"a"`, `"c"`}) {
		t.Errorf("its entries are %q", entries)
	}
}

func TestJournal_ErrorsNameTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	if err := os.WriteFile(path, []byte("1\n2\n3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wrong := errors.New("wrong entry")
	_, err := Open(path, func(entry []byte) error {
		if entry[0] == '2' {
			return wrong
		}
		return nil
	})
	if !errors.Is(err, wrong) || !strings.Contains(err.Error(), "line 2") || !strings.Contains(err.Error(), path) {
		t.Errorf("an entry that cannot be applied: %v", err)
	}
	var store sync.Mutex
	l, _ := opened(t, path)
	l.Close()
	l.WriteLocked("x")
	if err := l.Flush(&store); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file that is closed: %v", err)
	}
}
