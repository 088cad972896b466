//go:build darwin || linux

package tempdir

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestLeftoversAreRemoved(t *testing.T) {
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
