//go:build darwin || linux

package postgres

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// clusters are the clusters that initdb has made in this process, by the directory of the
// programs. initdb does most of the work of a server's start, and its result is always the
// same.
var clusters struct {
	mu  sync.Mutex
	all map[programs]cluster
}

// cluster is the content of a data directory: some 40 MB, most of which is zeros.
type cluster []clusterFile

type clusterFile struct {
	name string
	mode fs.FileMode // for a directory, data is nil
	data []byte
}

// cluster makes a cluster in dir: with initdb the first time, and later as a copy of that.
// Copies have the same identifier, by which a standby recognizes its primary. No test has a
// standby follow a server that it was not copied from.
func (p programs) cluster(dir *directory) error {
	made, copied, err := p.madeCluster(dir)
	if err != nil || !copied {
		return err
	}
	return made.write(dir)
}

// madeCluster returns the cluster of initdb, and whether it still has to be copied to dir.
// The first call runs initdb; concurrent calls wait for it.
func (p programs) madeCluster(dir *directory) (made cluster, copied bool, err error) {
	clusters.mu.Lock()
	defer clusters.mu.Unlock()
	if made, ok := clusters.all[p]; ok {
		return made, true, nil
	}
	if err := p.initdb(dir); err != nil {
		return nil, false, err
	}
	if made, err = readCluster(dir.data); err != nil {
		return nil, false, err
	}
	if clusters.all == nil {
		clusters.all = map[programs]cluster{}
	}
	clusters.all[p] = made
	return made, false, nil
}

// readCluster returns the content of a data directory, directories before their content.
func readCluster(root string) (made cluster, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		file := clusterFile{mode: info.Mode()}
		if file.name, err = filepath.Rel(root, path); err != nil {
			return err
		}
		if !entry.IsDir() {
			if file.data, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		made = append(made, file)
		return nil
	})
	return made, err
}

// write copies the cluster to the directory of a server, for its account.
func (c cluster) write(dir *directory) error {
	for _, file := range c {
		path := filepath.Join(dir.data, file.name)
		var err error
		if file.mode.IsDir() {
			err = os.Mkdir(path, file.mode.Perm())
		} else {
			err = os.WriteFile(path, file.data, file.mode.Perm())
		}
		if err == nil && dir.account != nil {
			err = os.Chown(path, int(dir.account.Uid), int(dir.account.Gid))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// configure writes the configuration of a cluster. Clients connect as the superuser postgres,
// or with a password.
func (d *directory) configure(conf string) error {
	return errors.Join(
		d.appendFile("postgresql.conf", conf),
		d.truncateFile("pg_hba.conf", "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"),
	)
}
