package sqs

import (
	"os"
	"testing"

	"github.com/reprise-go/reprise/bench/internal/scenario/scenariotest"
)

func TestMain(m *testing.M) {
	RunServerProcess() // if this process is a server
	os.Exit(m.Run())
}

func TestScenarios_Run(t *testing.T) {
	if testing.Short() {
		t.Skip("servers: not in short runs")
	}
	servers := &Servers{}
	scenariotest.Run(t, servers.Scenarios())
	if err := servers.Close(); err != nil {
		t.Error(err)
	}
}
