//go:build !darwin && !linux

package main

import "fmt"

func startRabbit() (url string, stop func() error, err error) {
	return "", nil, fmt.Errorf("no broker can be started on this system; set %s to the URL of one", rabbitVariable)
}
