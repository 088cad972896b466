package conformance

import "github.com/reprise-go/reprise/core"

type job struct{}
type process interface{ Kill() }

var childOpens func() (core.Transport, error)

func startChild(t *trial, j job) process { return nil }
