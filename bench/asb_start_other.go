//go:build !darwin && !linux

package main

import (
	"context"
	"errors"
	"time"
)

func startASB(context.Context, time.Duration) (connectionString, adminAddr string, stop func() error, err error) {
	return "", "", nil, errors.New("no server of Service Bus can be started on this system")
}
