//go:build darwin || linux

package main

import "github.com/reprise-go/reprise/internal/testserver/rabbitmq"

// startRabbit starts a broker as somebody would who has changed nothing; or one that writes
// to no disk, for tests.
func startRabbit(onDisk bool) (url string, stop func() error, err error) {
	s, err := rabbitmq.Start(rabbitmq.Config{OnDisk: onDisk, AllProcessors: true})
	if err != nil {
		return "", nil, err
	}
	return s.URL("/"), s.Stop, nil
}
