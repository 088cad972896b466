//go:build darwin || linux

package tempdir

import (
	"path/filepath"
	"slices"
	"testing"
)

func TestParent_IsOnDiskWhereItMustBe(t *testing.T) {
	disk := t.TempDir()
	t.Setenv("TMPDIR", "")
	if got := Parent(disk, true); got != disk {
		t.Errorf("Parent of a server on disk = %q, want %q", got, disk)
	}
	got, want := Parent(disk, false), disk
	if hasRoom(memory) {
		want = memory
	}
	if got != want || !slices.Contains(Parents(disk), got) {
		t.Errorf("Parent = %q, want %q, which Parents has: %q", got, want, Parents(disk))
	}
	t.Setenv("TMPDIR", disk)
	if got := Parent(disk, false); got != disk {
		t.Errorf("Parent with TMPDIR set = %q, want %q", got, disk)
	}
	if missing := filepath.Join(disk, "missing"); hasRoom(missing) {
		t.Errorf("%s has room, though it does not exist", missing)
	}
}
