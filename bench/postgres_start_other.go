//go:build !darwin && !linux

package main

import "fmt"

func startPostgres(bool) (url string, stop func() error, err error) {
	return "", nil, fmt.Errorf("no server can be started on this system; set %s to the URL of one", postgresVariable)
}
