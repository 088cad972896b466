package inmemory

import "github.com/reprise-go/reprise/core"

// The modes of the in-memory transport that retry. The first is the default.
var modes = []struct {
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

// modeAims are the aims of the default mode; 0 is no aim.
type modeAims struct {
	times  float64 // the rate of Watermill with Retry
	allocs float64 // per message
}
