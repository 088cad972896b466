//go:build darwin || linux

package main

import "github.com/reprise-go/reprise/internal/testserver/rabbitmq"

// startRabbit starts a broker with its default settings, which keeps its data on the disk.
func startRabbit() (url string, stop func() error, err error) {
	s, err := rabbitmq.Start(rabbitmq.Config{OnDisk: true, AllProcessors: true})
	if err != nil {
		return "", nil, err
	}
	return s.URL("/"), s.Stop, nil
}
