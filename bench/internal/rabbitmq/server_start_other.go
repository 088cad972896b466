//go:build !darwin && !linux

package rabbitmq

import "fmt"

func startProcess() (url string, stop func() error, err error) {
	return "", nil, fmt.Errorf("no broker can be started on this system; set %s to the URL of one", URLVariable)
}
