//go:build !darwin && !linux

package sqs

import (
	"context"
	"errors"
	"time"
)

// RunServerProcess returns: this process is no server.
func RunServerProcess() {}

func startProcess(time.Duration) (url string, stop func() error, err error) {
	return "", nil, errors.New("no server of SQS can be started on this system")
}

func countRequests(context.Context, string) (int, error) {
	return 0, errors.ErrUnsupported // no server was started
}
