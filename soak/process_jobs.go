//go:build darwin || linux

package main

import (
	"fmt"
)

// newProcessJob opens the transport of a worker that is a process.
func newProcessJob(o processOptions) (*job, error) {
	switch o.System {
	case systemPostgres:
		return newPostgresJob(o)
	case systemRabbit:
		return newRabbitJob(o)
	case systemSQS:
		return newSQSJob(o)
	case systemASB:
		return newASBJob(o)
	default:
		return nil, fmt.Errorf("there is no transport %q", o.System)
	}
}
