//go:build darwin || linux

package postgres

import (
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
)

// TestCluster_IsACopyOfTheFirst tells copies by the identifier that initdb gives each cluster.
func TestCluster_IsACopyOfTheFirst(t *testing.T) {
	t.Parallel()
	bin, err := findPrograms("", packaged)
	if err != nil {
		t.Fatal(err)
	}
	account, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	owner := uint32(os.Geteuid()) //nolint:gosec // it is not negative
	if account != nil {
		owner = account.Uid
	}
	var made [2]cluster
	for i := range made {
		dir, err := newDirectory(account, false)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := dir.Remove(); err != nil {
				t.Error(err)
			}
		})
		if err := bin.cluster(dir); err != nil {
			t.Fatal(err)
		}
		if made[i], err = readCluster(dir.data); err != nil || len(made[i]) == 0 {
			t.Fatalf("there are %d files, %v", len(made[i]), err)
		}
		for _, file := range made[i] {
			var is syscall.Stat_t
			if err := syscall.Lstat(filepath.Join(dir.data, file.name), &is); err != nil || is.Uid != owner {
				t.Errorf("%s is owned by %d, %v; want %d", file.name, is.Uid, err, owner)
			}
		}
	}
	if !reflect.DeepEqual(made[0], made[1]) {
		t.Error("the second cluster is no copy of the first")
	}
}
