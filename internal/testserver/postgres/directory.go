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

	"github.com/reprise-go/reprise/internal/testserver/tempdir"
)

// prefix begins the names of servers' directories.
const prefix = "reprise-postgres-"

// directory is the directory of a server and its data.
type directory struct {
	*tempdir.Dir
	data    string // the cluster, a directory in it
	account *syscall.Credential
}

// serverAccount returns the account that servers run as, or nil for the user of this process.
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

// newDirectory makes a directory for an account, or for this user if account is nil.
func newDirectory(account *syscall.Credential, onDisk bool) (*directory, error) {
	dir, err := tempdir.New(tempdir.Parent(os.TempDir(), onDisk), prefix)
	if err != nil {
		return nil, err
	}
	d := &directory{Dir: dir, data: filepath.Join(dir.Path(), "data"), account: account}
	if err := d.makeData(); err != nil {
		return nil, errors.Join(err, d.Remove())
	}
	return d, nil
}

func (d *directory) makeData() error {
	if err := os.Mkdir(d.data, 0o700); err != nil {
		return err
	}
	if d.account == nil {
		return nil
	}
	return errors.Join(
		os.Chmod(d.Path(), 0o711), // the account must be able to enter it
		os.Chown(d.data, int(d.account.Uid), int(d.account.Gid)),
	)
}

// appendFile appends to a file of initdb, and truncateFile replaces its content. The file
// keeps its owner.
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

// removeLeftovers removes the directories of processes that have died. A server that still
// runs on a removed directory notices within a minute, and ends.
func removeLeftovers() {
	for _, parent := range tempdir.Parents(os.TempDir()) {
		tempdir.RemoveLeftovers(parent, prefix, nil)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
