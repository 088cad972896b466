package main

import "github.com/reprise-go/reprise/core"

// The modes of the in-memory transport that retry. The first is the default.
var inMemoryModes = []struct {
	name string
	mode core.TransactionMode
}{
	{"Reprise", core.TransactionDefault},
	{"Reprise, ReceiveOnly", core.TransactionReceiveOnly},
}

// The rows with which Reprise's are compared.
const (
	plainWatermill = "Watermill"
	retryWatermill = "Watermill + Retry"
)

// inMemoryAims are the aims of the default mode; 0 is no aim.
type inMemoryAims struct {
	times  float64 // the rate of Watermill with Retry
	allocs float64 // per message
}
