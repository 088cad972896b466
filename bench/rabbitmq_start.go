//go:build darwin || linux

package main

import "github.com/reprise-go/reprise/internal/testserver/rabbitmq"

// startRabbit starts a broker as somebody would who has changed nothing.
func startRabbit() (url string, stop func() error, err error) {
	s, err := rabbitmq.Start(rabbitmq.Config{})
	if err != nil {
		return "", nil, err
	}
	return s.URL("/"), s.Stop, nil
}
