//go:build darwin || linux

package postgres

import "github.com/reprise-go/reprise/internal/testserver/postgres"

// startProcess starts a server with production defaults except for the number of
// connections; or, for tests, one that does not write to the disk.
func startProcess(fsync bool) (url string, stop func() error, err error) {
	var settings map[string]string
	if fsync {
		settings = map[string]string{"fsync": "on"}
	}
	s, err := postgres.Start(postgres.Config{Settings: settings, OnDisk: fsync})
	if err != nil {
		return "", nil, err
	}
	return s.URL("postgres"), s.Stop, nil
}
