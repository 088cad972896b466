//go:build !darwin && !linux

package asb

import (
	"context"
	"errors"
	"time"
)

func startProcess(context.Context, time.Duration) (connectionString, adminAddr string, stop func() error, err error) {
	return "", "", nil, errors.New("no server of Service Bus can be started on this system")
}
