//go:build darwin || linux

// Package tempdir makes directories for servers that tests start, and removes
// those that killed test processes have left behind.
package tempdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// Dir is locked while its process lives, so that others can tell what was
// left behind.
type Dir struct {
	path string
	lock *os.File
}

// locked keeps the directories that were not removed: the garbage collector would close the
// file of one that nobody refers to any more, and with it end the lock.
var locked sync.Map

// New makes a directory in parent, whose name starts with prefix. Only this user
// may enter it.
func New(parent, prefix string) (*Dir, error) {
	for {
		path, err := os.MkdirTemp(parent, prefix)
		if err != nil {
			return nil, err
		}
		lock, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // it was taken for a leftover, which it is until it is locked
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

// RemoveLeftovers removes the directories in parent whose names start with prefix
// and whose processes have died, each after it was given to before, unless that is
// nil. It does what it can: those of another user stay, and one that a dying server
// still writes to is for the next time.
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
