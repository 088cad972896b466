//go:build darwin || linux

package tempdir

import (
	"os"
	"syscall"
)

// memory is the file system in memory that Linux has; macOS has none that everybody may
// write to.
const memory = "/dev/shm"

// room is how many bytes memory must have left for one more server, which writes less than a
// tenth of it. A container may have been given 64 MB.
const room = 2 << 30

// Parent returns the directory to make a server's directory in: disk, or a directory in memory
// if that may be and has room. A process that is killed loses nothing of what it has written
// there, and writing waits for no disk. Where the environment variable TMPDIR is set, it names
// the place of all temporary files, and Parent returns disk.
func Parent(disk string, onDisk bool) string {
	if onDisk || os.Getenv("TMPDIR") != "" || !hasRoom(memory) {
		return disk
	}
	return memory
}

// Parents returns every directory that Parent may have returned to another process.
func Parents(disk string) []string { return []string{disk, memory} }

// hasRoom reports whether a directory may be written to and has room for a server.
func hasRoom(dir string) bool {
	const write = 2
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil || syscall.Access(dir, write) != nil {
		return false
	}
	return s.Bavail*uint64(s.Bsize) >= room //nolint:gosec // the size of a block is positive
}
