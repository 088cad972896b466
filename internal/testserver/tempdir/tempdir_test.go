//go:build darwin || linux

package tempdir

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

func TestRemoveLeftovers(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	mine, err := New(parent, "server-")
	if err != nil {
		t.Fatal(err)
	}
	leftover, err := New(parent, "server-")
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(parent, "other")
	for _, name := range []string{filepath.Join(leftover.Path(), "a", "b"), other} {
		if err := os.MkdirAll(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var seen []string
	before := func(path string) {
		seen = append(seen, path)
		if _, err := os.Stat(filepath.Join(path, "a", "b")); err != nil {
			t.Errorf("it was removed before it was seen: %v", err)
		}
	}
	RemoveLeftovers(parent, "server-", before)
	if len(seen) > 0 {
		t.Errorf("directories whose process lives were taken for leftovers: %q", seen)
	}
	leftover.lock.Close() // as the death of its process does
	RemoveLeftovers(parent, "server-", before)
	if want := []string{leftover.Path()}; !slices.Equal(seen, want) {
		t.Errorf("%q were taken for leftovers, want %q", seen, want)
	}
	entries, err := os.ReadDir(parent)
	if err != nil || len(entries) != 2 {
		t.Errorf("there are %v, %v; want the locked one and the other one", entries, err)
	}
	if err := mine.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(mine.Path()); !os.IsNotExist(err) {
		t.Errorf("after Remove: %v, want that it does not exist", err)
	}
	if _, err := New(filepath.Join(parent, "nowhere"), "server-"); err == nil {
		t.Error("New in a directory that does not exist returned no error")
	}
}

// A test process that waits for its end refers to its server no more.
func TestLock_EndsWithItsProcess(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	if _, err := New(parent, "server-"); err != nil {
		t.Fatal(err)
	}
	for range 3 { // what is collected first is closed by the time that the last one is
		collected := make(chan struct{})
		runtime.AddCleanup(new([64]byte), func(done chan struct{}) { close(done) }, collected)
		runtime.GC()
		<-collected
	}
	RemoveLeftovers(parent, "server-", nil)
	if entries, err := os.ReadDir(parent); err != nil || len(entries) != 1 {
		t.Errorf("there are %v, %v; want the directory", entries, err)
	}
}
