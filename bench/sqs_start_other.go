//go:build !darwin && !linux

package main

import (
	"context"
	"errors"
	"time"
)

func serveSQS() {}

func startSQS(time.Duration) (url string, stop func() error, err error) {
	return "", nil, errors.New("no server of SQS can be started on this system")
}

func sqsRequests(context.Context, string) (int, error) {
	return 0, errors.ErrUnsupported // no server was started
}
