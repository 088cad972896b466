//go:build !darwin && !linux

package postgres

import "fmt"

func startProcess(bool) (url string, stop func() error, err error) {
	return "", nil, fmt.Errorf("no server can be started on this system; set %s to the URL of one", URLVariable)
}
