//go:build darwin || linux

package tempdir

import (
	"os"
	"syscall"
)

// memory is the file system in memory on Linux; macOS has none that every user may write to.
const memory = "/dev/shm"

// room is the free space in bytes that memory must have for one more server. A server writes
// less than a tenth of it. A container may have as little as 64 MB.
const room = 2 << 30

// Parent returns the directory in which to make a server's directory: disk, or a directory in
// memory if onDisk is false and there is room. A killed process loses nothing that it has
// written there, and writing does not wait for a disk. If the environment variable TMPDIR is
// set, it names the place for all temporary files, and Parent returns disk.
func Parent(disk string, onDisk bool) string {
	if onDisk || os.Getenv("TMPDIR") != "" || !hasRoom(memory) {
		return disk
	}
	return memory
}

// Parents returns every directory that Parent may have returned to another process.
func Parents(disk string) []string { return []string{disk, memory} }

// hasRoom reports whether a directory is writable and has room for a server.
func hasRoom(dir string) bool {
	const write = 2
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil || syscall.Access(dir, write) != nil {
		return false
	}
	return s.Bavail*uint64(s.Bsize) >= room //nolint:gosec // the size of a block is positive
}
