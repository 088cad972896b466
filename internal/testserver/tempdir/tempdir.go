//go:build darwin || linux

// Package tempdir makes directories for servers that tests start, and removes directories
// left behind by killed test processes.
package tempdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// Dir is locked while its process lives, so that other processes can recognize leftovers.
type Dir struct {
	path string
	lock *os.File
}

// locked keeps the directories that were not removed: the garbage collector would close the
// file of an unreferenced Dir, which would end the lock.
var locked sync.Map

// New makes a directory in parent with a name that starts with prefix. Only this user may
// enter it.
func New(parent, prefix string) (*Dir, error) {
	for {
		path, err := os.MkdirTemp(parent, prefix)
		if err != nil {
			return nil, err
		}
		lock, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // another process removed it: until it is locked it looks like a leftover
		} else if err != nil {
			return nil, err
		}
		d := &Dir{path: path, lock: lock}
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), d.Remove())
		}
		if _, err := os.Lstat(path); err != nil {
			_ = lock.Close() // it was only read
			continue
		}
		locked.Store(d, nil)
		return d, nil
	}
}

// Path returns the directory's name.
func (d *Dir) Path() string { return d.path }

// Remove removes the directory, whose server must have ended.
func (d *Dir) Remove() error {
	defer locked.Delete(d)
	return errors.Join(os.RemoveAll(d.path), d.lock.Close())
}

// RemoveLeftovers removes the directories in parent whose names start with prefix and whose
// processes have died. It first calls before with each directory, unless before is nil. It
// ignores failures: directories of another user stay, and a directory to which a dying server
// still writes is left for the next call.
func RemoveLeftovers(parent, prefix string, before func(path string)) {
	paths, err := filepath.Glob(filepath.Join(parent, prefix+"*"))
	if err != nil {
		return // a parent whose name is a bad pattern
	}
	for _, path := range paths {
		dir, err := os.Open(path)
		if err != nil {
			continue
		}
		if syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			if before != nil {
				before(path)
			}
			os.RemoveAll(path)
		}
		_ = dir.Close() // it was only read
	}
}
