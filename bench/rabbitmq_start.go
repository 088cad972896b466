//go:build darwin || linux

package main

import "github.com/reprise-go/reprise/internal/testserver/rabbitmq"

// startRabbit starts a broker with its default settings; or, for tests, one that does not
// write to the disk.
func startRabbit(onDisk bool) (url string, stop func() error, err error) {
	s, err := rabbitmq.Start(rabbitmq.Config{OnDisk: onDisk, AllProcessors: true})
	if err != nil {
		return "", nil, err
	}
	return s.URL("/"), s.Stop, nil
}
