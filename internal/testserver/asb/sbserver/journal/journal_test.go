package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// lines returns the lines of a journal.
func lines(t *testing.T, path string) string {
	t.Helper()
	var all []string
	if err := Read(path, func(line []byte) error { all = append(all, string(line)); return nil }); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(all)
}

func TestJournal_LinesOutliveIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	if got := lines(t, path); got != "[]" {
		t.Errorf("a journal that does not exist has %s", got)
	}
	var broker sync.Mutex
	present := func() []byte {
		if broker.TryLock() {
			t.Error("the broker is not locked")
		}
		return []byte("state")
	}
	l := New(path)
	if err := l.Rewrite(&broker, present); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"a", "b"} {
		l.AppendLocked([]byte(line))
	}
	if err := l.Flush(&broker, present); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, path); got != "[state a b]" {
		t.Errorf("the lines are %s", got)
	}
	l.limit = 1 // the next line replaces the file
	l.AppendLocked([]byte("is part of the state"))
	if err := errors.Join(l.Flush(&broker, present), l.Close()); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, path); got != "[state]" {
		t.Errorf("after a replacement the lines are %s", got)
	}
}

func TestRead_IgnoresAnIncompleteLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	if err := os.WriteFile(path, []byte("a\nb\nincomplete"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, path); got != "[a b]" {
		t.Errorf("the lines are %s", got)
	}
	wrong := errors.New("wrong")
	err := Read(path, func(line []byte) error {
		if string(line) == "b" {
			return wrong
		}
		return nil
	})
	if !errors.Is(err, wrong) || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a line that cannot be applied: %v", err)
	}
}

func TestFlush_KeepsItsError(t *testing.T) {
	t.Parallel()
	var broker sync.Mutex
	empty := func() []byte { return nil }
	l := New(filepath.Join(t.TempDir(), "journal"))
	if err := l.Rewrite(&broker, empty); err != nil {
		t.Fatal(err)
	}
	if err := l.Flush(&broker, empty); err != nil {
		t.Errorf("without lines: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l.AppendLocked([]byte("a"))
	first := l.Flush(&broker, empty)
	l.AppendLocked([]byte("b"))
	if second := l.Flush(&broker, empty); first == nil || !errors.Is(second, first) {
		t.Errorf("the errors are %v and %v", first, second)
	}
}
