//go:build darwin || linux

package rabbitmq

import "github.com/reprise-go/reprise/internal/testserver/rabbitmq"

// startProcess starts a broker with its default settings, which keeps its data on the disk.
func startProcess() (url string, stop func() error, err error) {
	s, err := rabbitmq.Start(rabbitmq.Config{OnDisk: true, AllProcessors: true})
	if err != nil {
		return "", nil, err
	}
	return s.URL("/"), s.Stop, nil
}
