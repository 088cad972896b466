//go:build darwin || linux

package postgres

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// prefix is what the names of servers' directories start with.
const prefix = "reprise-postgres-"

// directory holds a server's data. It is locked while its process lives, so that
// others can tell what was left behind.
type directory struct {
	path    string
	data    string // the cluster, a directory in path
	account *syscall.Credential
	lock    *os.File
}

// serverAccount returns whom servers run as, or nil for the user of this process.
// PostgreSQL refuses to run as root.
func serverAccount() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root, and there is no user postgres to run it as: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user postgres: %w", err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user postgres: %w", err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// newDirectory makes a directory for an account, or for this user if that is nil.
func newDirectory(account *syscall.Credential) (*directory, error) {
	for {
		path, err := os.MkdirTemp("", prefix)
		if err != nil {
			return nil, err
		}
		lock, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // it was taken for a leftover, which it is until it is locked
		} else if err != nil {
			return nil, err
		}
		d := &directory{path: path, data: filepath.Join(path, "data"), account: account, lock: lock}
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), d.remove())
		}
		if !exists(path) {
			_ = lock.Close() // it was only read
			continue
		}
		if err := d.makeData(); err != nil {
			return nil, errors.Join(err, d.remove())
		}
		return d, nil
	}
}

func (d *directory) makeData() error {
	if err := os.Mkdir(d.data, 0o700); err != nil {
		return err
	}
	if d.account == nil {
		return nil
	}
	return errors.Join(
		os.Chmod(d.path, 0o711), // the account must come through
		os.Chown(d.data, int(d.account.Uid), int(d.account.Gid)),
	)
}

// appendFile adds to a file that initdb has made, and truncateFile replaces what
// is in it. The file stays the account's.
func (d *directory) appendFile(name, content string) error {
	return d.write(name, content, os.O_APPEND)
}

func (d *directory) truncateFile(name, content string) error {
	return d.write(name, content, os.O_TRUNC)
}

func (d *directory) write(name, content string, how int) error {
	f, err := os.OpenFile(filepath.Join(d.data, name), os.O_WRONLY|how, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

// remove removes the directory, whose server must have ended.
func (d *directory) remove() error {
	return errors.Join(os.RemoveAll(d.path), d.lock.Close())
}

// removeLeftovers removes the directories whose processes have died. It does what
// it can: those of another user stay, and one that a dying server still writes to
// is for the next time. A server that runs on one that is removed notices within a
// minute, and ends.
func removeLeftovers() {
	paths, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	if err != nil {
		return // a temporary directory whose name is a bad pattern
	}
	for _, path := range paths {
		dir, err := os.Open(path)
		if err != nil {
			continue
		}
		if syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			os.RemoveAll(path)
		}
		_ = dir.Close() // it was only read
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
