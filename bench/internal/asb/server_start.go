//go:build darwin || linux

package asb

import (
	"context"
	"time"

	testserver "github.com/reprise-go/reprise/internal/testserver/asb"
)

// startProcess starts a server in a separate process, which keeps its messages in memory and delays each answer by latency. It
// returns the connection string and the address of the administration API.
func startProcess(ctx context.Context, latency time.Duration) (connectionString, adminAddr string, stop func() error, err error) {
	s, err := testserver.Start(ctx, testserver.Options{Latency: latency})
	if err != nil {
		return "", "", nil, err
	}
	return s.ConnectionString(s.Addr()), s.AdminAddr(), s.Stop, nil
}
